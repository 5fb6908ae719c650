/**
 * Mutants of TypeScript. Node replaces types by spaces and keeps all other characters in place. So
 * acorn, which parses only JavaScript, gives offsets that are valid in the source. Not mutated:
 * texts, code that is only logged, assignments in constructors, and numbers of named constants
 * (`RETRY_MS`, the bounds of a histogram: tuning, which only a measured duration could check).
 */
import { stripTypeScriptTypes } from 'node:module';
import { type AnyNode, type BinaryExpression, type Expression, type Program, parse } from 'acorn';
import { fullAncestor } from 'acorn-walk';
import type { Edit } from './mutant.ts';
import { isSql, sqlEdits } from './sql-mutants.ts';

const SWAPPED: Partial<Record<BinaryExpression['operator'], string>> = {
  '===': '!==',
  '!==': '===',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '-': '+',
  '*': '/',
  '/': '*',
};
const METHODS: Record<string, string> = {
  some: 'every',
  every: 'some',
  min: 'max',
  max: 'min',
  find: 'findLast',
  findLast: 'find',
};
/** The name of the called function is within this many characters. */
const CALLEE_CHARS = 60;
const LOGGED = /\blog\.(trace|debug|info|warn|error|fatal)\(/;

export function parseSource(source: string): Program {
  const code = stripTypeScriptTypes(source, { mode: 'strip' });
  if (code.length !== source.length) throw new Error('the types were not stripped in place');
  return parse(code, { ecmaVersion: 'latest', sourceType: 'module' });
}

export function isSource(text: string): boolean {
  try {
    parseSource(text);
    return true;
  } catch {
    return false;
  }
}

export function codeEdits(source: string): Edit[] {
  const edits: Edit[] = [];
  const textOf = ({ start, end }: { start: number; end: number }) => source.slice(start, end);
  fullAncestor(parseSource(source), (node, _state, ancestors) => {
    const parent = ancestors.at(-2);
    const isOfConstructor = ancestors.some(
      (each) => (each as AnyNode).type === 'MethodDefinition' && isConstructor(each),
    );
    if (isOfConstructor && isSettingUp(node as AnyNode)) return;
    if (ancestors.some((each) => isOnlyLogged(each as AnyNode, textOf))) return;
    if (isNumeric(node as AnyNode) && ancestors.some((each) => isNamedConstant(each as AnyNode, textOf))) return;
    edits.push(...editsOf(node as AnyNode, parent as AnyNode | undefined, textOf));
    if (isText(node as AnyNode) && isSql(textOf(node)))
      edits.push(...sqlEdits(textOf(node)).map((edit) => moved(edit, node.start)));
  });
  const seen = new Set<string>();
  return edits.filter((edit) => {
    const key = `${edit.from} ${edit.to} ${edit.is}`;
    return !seen.has(key) && seen.add(key);
  });
}

type TextOf = (node: { start: number; end: number }) => string;

function editsOf(node: AnyNode, parent: AnyNode | undefined, textOf: TextOf): Edit[] {
  switch (node.type) {
    case 'IfStatement':
    case 'ConditionalExpression':
    case 'WhileStatement':
      return [negated(node.test, textOf)];
    case 'BinaryExpression':
      return binaryEdits(node, parent, textOf);
    case 'LogicalExpression':
      if (node.operator === '??') return [];
      return [operatorEdit(node, node.operator === '&&' ? '||' : '&&', textOf)];
    case 'ExpressionStatement':
      if (node.directive !== undefined) return [];
      return [{ from: node.start, to: node.end, is: ';', kind: 'statement removed' }];
    case 'ReturnStatement':
    case 'ContinueStatement':
    case 'BreakStatement':
      if (node.type === 'ReturnStatement' && node.argument) return [];
      // It ends a case of a switch; the next case would need its own values.
      if (node.type === 'BreakStatement' && parent?.type === 'SwitchCase') return [];
      return [{ from: node.start, to: node.end, is: ';', kind: 'jump removed' }];
    case 'ThrowStatement':
      return [{ from: node.start, to: node.end, is: ';', kind: 'throw removed' }];
    case 'Literal':
      return literalEdits(node);
    case 'UnaryExpression':
      if (node.operator !== '!' || isTest(node, parent)) return [];
      return [{ from: node.start, to: node.start + 1, is: '', kind: 'negation removed' }];
    case 'CallExpression':
      return callEdits(node, textOf);
    default:
      return [];
  }
}

function binaryEdits(node: BinaryExpression, parent: AnyNode | undefined, textOf: TextOf): Edit[] {
  const { operator, left, right } = node;
  const swapped = SWAPPED[operator];
  // If it is a whole condition, its negation is already a mutant.
  if (operator.length === 3 && isTest(node, parent)) return [];
  if (operator === '+') {
    const isTextual = [left, right].some((side) => side.type !== 'PrivateIdentifier' && /['"`]/.test(textOf(side)));
    return isTextual ? [] : [operatorEdit(node, '-', textOf)];
  }
  return swapped === undefined ? [] : [operatorEdit(node, swapped, textOf)];
}

function callEdits(node: Extract<AnyNode, { type: 'CallExpression' }>, textOf: TextOf): Edit[] {
  const { callee } = node;
  if (callee.type !== 'MemberExpression' || callee.property.type !== 'Identifier') return [];
  const { property } = callee;
  if (property.name === 'filter' && node.arguments.length === 1)
    return [{ from: node.start, to: node.end, is: textOf(callee.object), kind: 'filter removed' }];
  const other = METHODS[property.name];
  return other === undefined ? [] : [{ from: property.start, to: property.end, is: other, kind: 'method swapped' }];
}

function literalEdits(node: Extract<AnyNode, { type: 'Literal' }>): Edit[] {
  const edit = (is: string): Edit[] => [{ from: node.start, to: node.end, is, kind: 'constant changed' }];
  if (typeof node.value === 'boolean') return edit(String(!node.value));
  if (typeof node.value !== 'number' || node.value > 9) return [];
  return edit(String(node.value === 0 ? 1 : node.value - 1));
}

function operatorEdit(
  { left, right, operator }: { left: { end: number }; right: { start: number }; operator: string },
  is: string,
  textOf: TextOf,
): Edit {
  const between = textOf({ start: left.end, end: right.start });
  const from = left.end + between.indexOf(operator);
  return { from, to: from + operator.length, is, kind: 'operator swapped' };
}

function negated(test: Expression, textOf: TextOf): Edit {
  return { from: test.start, to: test.end, is: `!(${textOf(test)})`, kind: 'condition negated' };
}

function isTest(node: AnyNode, parent: AnyNode | undefined): boolean {
  return parent !== undefined && 'test' in parent && parent.test === node && parent.type !== 'ForStatement';
}

/** True when the statement affects only the log. */
function isOnlyLogged(node: AnyNode, textOf: TextOf): boolean {
  if (node.type === 'ExpressionStatement') return LOGGED.test(textOf(node).slice(0, CALLEE_CHARS));
  if (node.type !== 'IfStatement') return false;
  return [node.consequent, node.alternate].every((branch) => !branch || isOnlyLogged(branch, textOf));
}

function isText(node: AnyNode): boolean {
  return node.type === 'TemplateLiteral' || (node.type === 'Literal' && typeof node.value === 'string');
}

function isNumeric(node: AnyNode): boolean {
  return node.type === 'BinaryExpression' || (node.type === 'Literal' && typeof node.value === 'number');
}

/** `const RETRY_MS = …`, but not a function or a statement of that name. */
function isNamedConstant(node: AnyNode, textOf: TextOf): boolean {
  return node.type === 'VariableDeclarator' && /^[A-Z0-9_]+$/.test(textOf(node.id));
}

function isConstructor(node: object): boolean {
  return (node as { kind?: string }).kind === 'constructor';
}

/** An assignment in a constructor: without it nothing works, so that mutant proves nothing. */
function isSettingUp(node: AnyNode): boolean {
  return node.type === 'ExpressionStatement' && node.expression.type === 'AssignmentExpression';
}

function moved(edit: Edit, by: number): Edit {
  return { ...edit, from: edit.from + by, to: edit.to + by };
}
