/** A link that a test drives through events; `chance` and `now` are set by hand. */
import type { Endpoint } from '../../lib/agent/link/endpoints.ts';
import { initialLink, type LinkEffect, type LinkEvent, type LinkState } from '../../lib/agent/link/link-state.ts';
import { stepLink } from '../../lib/agent/link/link-step.ts';
import type { RefuseFrame, WelcomeFrame } from '../../lib/protocol/link/frames.ts';

export const uuidOf = (digit: number) => `${digit}0000000-0000-4000-8000-000000000000`;
export const A: Endpoint = { host: 'a', port: 1, uuid: uuidOf(1) };
export const B: Endpoint = { host: 'b', port: 2, uuid: uuidOf(2) };
export const C: Endpoint = { host: 'c', port: 3, uuid: uuidOf(3) };

export const welcome = (epoch: number, cnapiUuid = uuidOf(1)): WelcomeFrame => ({
  type: 'welcome',
  version: 1,
  capabilities: [],
  cnapiUuid,
  epoch,
  heartbeatMs: 1000,
  serverSilenceMs: 3000,
  reconnectMaxMs: 8000,
  maxFrameBytes: 65_536,
  addresses: [],
  sendSysinfo: false,
});

export const refusal = (code: string, fields: Partial<RefuseFrame> = {}): RefuseFrame => ({
  type: 'refuse',
  code,
  message: '',
  ...fields,
});

export class Walk {
  state: LinkState = initialLink(0, 8000);
  effects: LinkEffect[] = [];
  now = 0;
  chance = 0;

  on(...events: LinkEvent[]): this {
    for (const event of events) {
      const { state, effects } = stepLink(this.state, event, { now: this.now, chance: this.chance });
      this.state = state;
      this.effects = effects;
    }
    return this;
  }

  expire(): this {
    return this.on({ type: 'expired', timerGeneration: this.state.timerGeneration });
  }

  get socket(): number {
    return this.state.attempt?.socketId ?? 0;
  }

  get done(): string[] {
    return this.effects.map((effect) => effect.do);
  }

  get wait(): number | undefined {
    return this.effects.find((effect) => effect.do === 'arm')?.ms;
  }

  get host(): string | undefined {
    return this.state.attempt?.endpoint.host;
  }

  connecting(...known: Endpoint[]): this {
    this.on({ type: 'start' });
    return this.on({ type: 'resolved', timerGeneration: this.state.timerGeneration, addresses: known });
  }

  greeting(...known: Endpoint[]): this {
    this.connecting(...known);
    return this.on({ type: 'opened', socketId: this.socket });
  }

  greet(epoch: number, cnapiUuid?: string): this {
    const { socket } = this;
    return this.on(
      { type: 'opened', socketId: socket },
      { type: 'welcomed', socketId: socket, welcome: welcome(epoch, cnapiUuid) },
      { type: 'journalled', socketId: socket },
    );
  }

  /** A live session with A at epoch 1, which has answered a heartbeat and lasted. */
  live(...known: Endpoint[]): this {
    this.connecting(A).greet(1);
    this.on({ type: 'steady', socketId: 1 });
    this.now += 5000;
    this.state = { ...this.state, known: [A, ...known] };
    return this;
  }

  failed(): this {
    return this.on({ type: 'closed', socketId: this.socket, reason: 'refused' });
  }
}
