import type { CreateOptions, Estimator } from './oometer.mjs';

/** The module of the widget, smaller than the whole one. */
export default function create(options?: CreateOptions): Promise<Estimator>;
