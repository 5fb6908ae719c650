/** The field, if it has a value. */
export const optionalField = <Name extends string, Value>(name: Name, value: Value | null | undefined) =>
  (value === null || value === undefined ? {} : { [name]: value }) as { [Key in Name]?: Value };
