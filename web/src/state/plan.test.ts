import { describe, expect, it } from 'vitest';
import { FIELDS, applies, fieldAt, START } from './fields';
import { toJob } from './job';
import { llama } from './model.fixture';
import { read, write } from './permalink';
import { planOf, unpackPlan, withPlan } from './plan';

const change = { training: { activation_checkpointing: { mode: 'non-reentrant', segments: { layers: [[0, 2], 5] } } } };
const mode = (setup: typeof START): unknown => toJob(setup, llama).training?.activation_checkpointing;

describe('chosen blocks', () => {
  it('become the job’s segments, and travel in a link', () => {
    const setup = withPlan({ ...START, checkpointing: 'none', ckptevery: '2' }, 'layers', planOf(change));
    expect(mode(setup)).toEqual({ mode: 'non-reentrant', segments: { layers: [[0, 2], 5] } });
    expect(read(write(setup)).setup).toEqual(setup);
    expect(fieldAt('/training/activation_checkpointing/segments/layers')?.key).toBe('ckptplan');
    const shown = FIELDS.filter((field) => applies(field, llama, setup)).map(({ key }) => key);
    expect(shown).toContain('ckptplan');
    expect(shown).not.toContain('ckptevery');
  });
  it('of one stack leave another’s', () => {
    const both = withPlan(withPlan(START, 'layers', planOf(change)), 'tower', { tower: [1] });
    expect(unpackPlan(both.ckptplan)).toEqual({ layers: [[0, 2], 5], tower: [1] });
    expect(unpackPlan(withPlan(both, 'layers', {}).ckptplan)).toEqual({ tower: [1] });
    const none = withPlan(withPlan(both, 'layers', {}), 'tower', {});
    expect(none).toMatchObject({ checkpointing: 'none', ckptplan: '' });
    expect(mode(none)).toBe('none');
  });
  it('that nobody can read are none', () => {
    expect(unpackPlan('abc')).toEqual({});
    expect(mode({ ...START, ckptplan: 'abc' })).toBe('non-reentrant');
    expect(planOf({ training: { activation_checkpointing: 'none' } })).toEqual({});
  });
});
