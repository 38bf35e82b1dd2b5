// What a link stands for.
import type { Library } from '../state/library';
import { read, type Link } from '../state/permalink';
import type { Core } from './wrap';

/** Reads a link with the models that it names, which then are the library's, too. */
export async function follow(core: Core, library: Library, fragment: string): Promise<Link> {
  const { setup, pins } = read(fragment);
  const knows = (model: string): boolean => core.catalogue.models.some(({ id }) => id === model);
  if (![setup, ...pins].every(({ model }) => knows(model))) await core.loadModels();
  const { models, gpus } = core.catalogue;
  library.presets = models;
  return library.open(read(fragment, { model: models.map(({ id }) => id), gpu: gpus.map(({ id }) => id) }));
}
