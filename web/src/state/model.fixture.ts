// Models for tests, with the traits that the built core tells.
import { loadCore } from '../../vite.plugins';
import { ownModel, type Model, type OwnModel } from './model';
import type { Traits } from './traits';

const core = await loadCore();

/** What the core says of a job's model. */
export const traitsOf = (model: object): Traits => JSON.parse(core.traits(JSON.stringify({ model }))) as Traits;

export const preset = (id: string): Model => ({
  id,
  title: id,
  description: '',
  job: { preset: id },
  ...traitsOf({ preset: id }),
});
export const own = (model: OwnModel): Model => ownModel('own', model, traitsOf(model));

export const llava = preset('llava-1.5-7b');
/** A model of text alone. */
export const llama = preset('llama-2-7b');
/** A vision encoder alone. */
export const tower = own({ name: 'tower', config: { model_type: 'clip_vision_model' } });
