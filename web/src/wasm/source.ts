// The script with the core: the first, smaller one until a job needs more than it carries, then the whole one.
export type Script = typeof import('./oometer');

let load = (): Promise<Script> => import('./oometer');

export function script(): Promise<Script> {
  return load();
}

/** From now on. */
export function takeWhole(): void {
  load = () => import('./whole');
}

/** Whether an answer says that the whole core has to be asked. */
export function isElsewhere(answer: string): boolean {
  return answer.startsWith('{"error":{"code":"elsewhere"');
}
