// The larger cores, each fetched when it is needed first.
import type { Oometer } from 'oometer-core/oometer.mjs';
import type { Loader } from './load';
import type { Larger } from './wrap';

/** A core's script: what it loads, and where it lies itself, for workers to start from. */
export const importLarger = (larger: Larger): Promise<Loader<Oometer> & { script: string }> =>
  larger === 'graph' ? import('./graph') : import('./whole');
