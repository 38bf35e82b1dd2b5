import type { CreateOptions, Page } from './oometer.mjs';

/** What a page's first answer takes. Some jobs are answered with an error of code "elsewhere": the whole core takes them. */
export default function create(options?: CreateOptions): Promise<Page>;
