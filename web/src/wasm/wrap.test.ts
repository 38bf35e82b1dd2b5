import type { Oometer } from 'oometer-core/oometer.mjs';
import { describe, expect, it } from 'vitest';
import { report } from './report.fixture';
import { wrap, type Core } from './wrap';

const simple = { version: 1, model: { preset: 'llava-1.5-7b' } } as const;
const other = { version: 1, model: { preset: 'qwen3-0.6b' } } as const;

class RestNeeded extends Error {
  override name = 'RestNeeded';
}

/** A core that says who it is in its reports; without the rest it answers simple jobs alone. */
function core(name: string, needsRest: boolean): Oometer {
  const estimate = (job: string): string => {
    if (needsRest && job !== JSON.stringify(simple)) throw new RestNeeded();
    return JSON.stringify(report({ version: name }));
  };
  return { presets: () => '{"models": [], "gpus": []}', version: () => name, estimate } as unknown as Oometer;
}

async function wrapped(whole: () => Promise<Oometer>): Promise<Core> {
  let made = 0;
  return wrap(() => Promise.resolve(core(`first ${++made}`, true)), whole);
}

function says(core: Core, job: typeof simple | typeof other): string {
  const answer = core.estimate(job);
  return answer.ok ? answer.report.version : answer.error.code;
}

describe('a core in two parts', () => {
  it('answers what it can, and the rest when all of it is there', async () => {
    const asked = await wrapped(() => Promise.resolve(core('whole', false)));
    expect(says(asked, simple)).toBe('first 1');
    expect(says(asked, other)).toBe('elsewhere');
    expect(asked.raw(other)).toBeNull();
    await asked.loadWhole();
    expect(says(asked, other)).toBe('whole');
    expect(says(asked, simple)).toBe('whole');
  });

  it('is not asked again when it lacked something, but replaced', async () => {
    let fails = true;
    const asked = await wrapped(() =>
      fails ? Promise.reject(new Error('no network')) : Promise.resolve(core('whole', false)),
    );
    expect(says(asked, other)).toBe('elsewhere');
    expect(says(asked, simple)).toBe('elsewhere');
    await expect(asked.loadWhole()).rejects.toThrow('no network');
    expect(says(asked, simple)).toBe('first 2');
    fails = false;
    await asked.loadWhole();
    expect(says(asked, other)).toBe('whole');
  });

  it('stays with an error that is none of its own', async () => {
    const broken = {
      ...core('broken', false),
      estimate: () => {
        throw new Error('a bug');
      },
    };
    const asked = await wrap(
      () => Promise.resolve(broken),
      () => Promise.resolve(broken),
    );
    expect(() => asked.estimate(simple)).toThrow('a bug');
  });
});
