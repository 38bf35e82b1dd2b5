import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadCore } from '../../vite.plugins';
import { START } from './fields';
import { toJob } from './job';
import type { Job } from './job.generated';
import { setupOfJob } from './job-setup';
import type { OwnModel } from './model';
import { llama, own, preset } from './model.fixture';

const core = await loadCore();
const jobs = new URL('../../../presets/jobs/', import.meta.url);
const peak = (job: object): number =>
  (JSON.parse(core.estimate(JSON.stringify(job))) as { peak: { total: number } }).peak.total;

describe('a job as settings', () => {
  it.each(readdirSync(jobs).filter((file) => !file.includes('original-code')))('has the peak of %s', (file) => {
    const job = JSON.parse(readFileSync(new URL(file, jobs), 'utf8')) as Job;
    const named = 'preset' in job.model ? job.model.preset : undefined;
    const model = named === undefined ? own(job.model as OwnModel) : preset(named);
    const setup = setupOfJob(job, { model: named ?? START.model, config: named === undefined ? 'own' : '' }, model);
    expect(peak(toJob(setup ?? START, model))).toBe(peak(job));
  });

  it('is none where no field holds what the job says', () => {
    const job = { version: 1, model: { preset: 'llama-2-7b' }, parallel: { rank: 3 } } as unknown as Job;
    expect(setupOfJob(job, { model: 'llama-2-7b', config: '' }, llama)).toBeNull();
  });
});
