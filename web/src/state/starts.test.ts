import { readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadCore } from '../../vite.plugins';
import { toJob } from './job';
import { unpack } from './model';
import { own, preset } from './model.fixture';
import { read, write } from './permalink';
import { setupOf, STARTS } from './starts';

const core = await loadCore();
const presets = new URL('../../../presets/', import.meta.url);

describe.each(STARTS)('the start “$label”', (start) => {
  const setup = setupOf(start);

  it('is a link of the page', () => {
    const link = read(write(setup));
    expect(link.problems).toEqual([]);
    expect(link.setup).toEqual(setup);
  });

  it('is the job of its file, and is answered', async () => {
    const model = setup.config === '' ? preset(setup.model) : own(await unpack(setup.config));
    const job = toJob(setup, model);
    const file = new URL(`jobs/${start.id}.json`, presets);
    if (process.env.OOMETER_WRITE_JOBS) writeFileSync(file, `${JSON.stringify(job, null, 2)}\n`);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(job);
    const answer = JSON.parse(core.estimate(JSON.stringify(job))) as { verdict?: string };
    expect(answer.verdict).toBe('fits');
  });
});

it('has the hub’s own config in the start that names no preset', async () => {
  const hub = JSON.parse(readFileSync(new URL('hub.json', presets), 'utf8')) as { id: string; config: object }[];
  for (const { set } of STARTS) {
    if (!set.config) continue;
    const { name, ...rest } = await unpack(set.config);
    expect(rest).toEqual({ config: hub.find(({ id }) => id === name)?.config });
  }
});
