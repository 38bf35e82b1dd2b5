import type { Oometer } from 'oometer-core/oometer.mjs';
import { describe, expect, it } from 'vitest';
import { report } from './report.fixture';
import { wrap, type Core } from './wrap';

/** What each of them takes: nothing more than the first part, the rest, a family besides. */
const simple = { version: 1, model: { preset: 'llava-1.5-7b' } } as const;
const other = { version: 1, model: { preset: 'llava-1.5-13b' } } as const;
const family = { version: 1, model: { preset: 'qwen3-0.6b' } } as const;
const NEEDS = new Map([
  [JSON.stringify(simple), []],
  [JSON.stringify(other), ['rest']],
  [JSON.stringify(family), ['rest', 'qwen3']],
]);

class PartNeeded extends Error {
  override name = 'PartNeeded';
  constructor(readonly part: string) {
    super();
  }
}

/** A core that says in its reports which parts it has. */
function core(parts: readonly string[]): Oometer {
  const estimate = (job: string): string => {
    const lacks = NEEDS.get(job)?.find((part) => !parts.includes(part));
    if (lacks !== undefined) throw new PartNeeded(lacks);
    return JSON.stringify(report({ version: ['first', ...parts].join(' ') }));
  };
  return { gpus: () => '[]', version: () => '', estimate } as unknown as Oometer;
}

const wrapped = (): Promise<Core> => wrap((parts) => Promise.resolve(core(parts)));

function says(core: Core, job: typeof simple | typeof other | typeof family): string {
  const answer = core.estimate(job);
  return answer.ok ? answer.report.version : answer.error.code;
}

describe('a core in parts', () => {
  it('answers what it can, and the rest when that is there', async () => {
    const asked = await wrapped();
    expect(says(asked, simple)).toBe('first');
    expect(says(asked, other)).toBe('elsewhere');
    expect(asked.raw(other)).toBeNull();
    await asked.loadWhole();
    expect(says(asked, other)).toBe('first rest');
    expect(says(asked, simple)).toBe('first rest');
  });

  it('loads what a family needs, and no family that nobody asks for', async () => {
    const asked = await wrapped();
    await asked.loadWhole();
    expect(says(asked, other)).toBe('first rest');
    expect(says(asked, family)).toBe('elsewhere');
    await asked.loadWhole();
    expect(says(asked, family)).toBe('first rest qwen3');
  });

  it('loads all that one question lacks, one after the other', async () => {
    const asked = await wrapped();
    expect(says(asked, family)).toBe('elsewhere');
    await asked.loadWhole();
    expect(says(asked, family)).toBe('first rest qwen3');
  });

  it('is not asked again when it lacked something, but replaced', async () => {
    let fails = true;
    let made = 0;
    const asked = await wrap((parts) => {
      if (fails && parts.length > 0) return Promise.reject(new Error('no network'));
      made++;
      return Promise.resolve(core(parts));
    });
    expect(says(asked, other)).toBe('elsewhere');
    expect(says(asked, simple)).toBe('elsewhere');
    await expect(asked.loadWhole()).rejects.toThrow('no network');
    expect(says(asked, simple)).toBe('first');
    expect(made).toBe(2);
    fails = false;
    await asked.loadWhole();
    expect(says(asked, other)).toBe('first rest');
  });

  it('stays with an error that is none of its own', async () => {
    const broken = {
      ...core([]),
      estimate: () => {
        throw new Error('a bug');
      },
    };
    const asked = await wrap(() => Promise.resolve(broken));
    expect(() => asked.estimate(simple)).toThrow('a bug');
  });
});
