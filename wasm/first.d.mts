/** The whole core's interface; some jobs are answered with an error of code "elsewhere": the whole core takes them. */
export * from './oometer.mjs';
export { default } from './oometer.mjs';
