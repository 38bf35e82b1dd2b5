// The models and GPUs that the core knows. Of the models it was asked when the page was built.
import { first, later } from 'virtual:models';
import { OWN_GPU } from '../state/fields';
import type { Model } from '../state/model';

export interface Gpu {
  id: string;
  name: string;
  vendor: string;
  architecture: string;
  usable_bytes: number;
  /** measured, derived or nominal: how its memory is known. */
  basis: string;
  /** Whether its libraries' behaviour was checked. */
  calibrated: boolean;
}

export interface Catalogue {
  models: readonly Model[];
  gpus: readonly Gpu[];
}

/** Whatever the core does not know by a name: its memory is a setting. */
const OWN: Gpu = {
  id: OWN_GPU,
  name: 'Another GPU, by its memory',
  vendor: '',
  architecture: 'own',
  usable_bytes: 0,
  basis: '',
  calibrated: false,
};

/** Of the models only those of first answers. */
export const firstCatalogue = (gpus: string): Catalogue => ({
  models: first,
  gpus: [...(JSON.parse(gpus) as Gpu[]), OWN],
});

/** All models, by their ids. */
export async function allModels(): Promise<readonly Model[]> {
  const response = await fetch(later, { credentials: 'same-origin' });
  if (!response.ok) throw new Error(`${later}: ${response.status} ${response.statusText}`);
  return [...first, ...((await response.json()) as Model[])].sort((a, b) => (a.id < b.id ? -1 : 1));
}
