import type { CreateOptions, Oometer } from './oometer.mjs';

/** The core of oometer with a graph's operators: it answers every job. The others answer one with a graph by an error of code "elsewhere". */
export default function create(options?: CreateOptions): Promise<Oometer>;
