// What the core makes of a trainer's own files. All sizes are bytes.
import type { Job } from '../state/job.generated';
import type { JobError, Verdict } from './report';

/** A file as somebody gave it: the tree of JSON or YAML, or the text of a script. */
export interface SourceFile {
  name: string;
  content: unknown;
  /** As it is written, where that is known. */
  text?: string;
}

/** A value of the job, and their key that led to it. */
export interface Taken {
  /** "" where no file says it. */
  file: string;
  key: string;
  pointer: string;
  value: unknown;
  from: 'file' | 'default';
  /** Of a default: where it stands in the trainer's source; of an older name: the newer one. */
  source: string;
}

/** A key that the job leaves out, and what it could change. */
export interface Unmodelled {
  file: string;
  key: string;
  value: unknown;
  text: string;
  effect: 'less' | 'more' | 'either' | 'unknown';
  bytes: number | null;
}

/** What the files name or leave open. */
export interface Missing {
  kind: 'file' | 'config.json' | 'variable' | 'gpus' | 'value';
  name: string;
  file: string;
  key: string;
  text: string;
}

export interface Imported {
  /** Project and version; "" where no trainer's file is among them. */
  trainer: string;
  job: Job;
  taken: readonly Taken[];
  ignored: readonly { file: string; key: string }[];
  unmodelled: readonly Unmodelled[];
  missing: readonly Missing[];
  refused: { file: string; key: string; pointer: string; message: string } | null;
}

export interface ImportQuestion {
  files: readonly SourceFile[];
  /** Models by their names. */
  hub: readonly object[];
  gpu?: string;
  gpus?: number;
}

/** What helps, as the files say it. */
export interface FileChange {
  costs: string;
  /** "gradient_checkpointing: true" */
  words: readonly string[];
  /** A unified diff of each changed file whose text is known. */
  patches: readonly string[];
  peak: number;
  verdict: Verdict;
  saves: number;
}

/** One thing in which two trainings differ. */
export interface FileDifference {
  pointer: string;
  first: unknown;
  second: unknown;
  first_key: string;
  second_key: string;
  /** What it adds to the first by itself, and what it adds to all the others; null where that is no job. */
  alone: number | null;
  on_the_top: number | null;
}

interface Side {
  trainer: string;
  peak: number;
  verdict: Verdict;
}

export interface FileComparison {
  first: Side;
  second: Side;
  differences: readonly FileDifference[];
  together: number;
}

/** Null where the files are not two trainings. */
export function readCompared(json: string): { comparison: FileComparison | null; imports: readonly Imported[] } | null {
  const answer = JSON.parse(json) as { comparison: FileComparison | null; imports?: readonly Imported[] };
  return answer.imports?.length === 2 ? { comparison: answer.comparison, imports: answer.imports } : null;
}

export function readImported(json: string): Imported | JobError {
  const answer = JSON.parse(json) as Imported | { error: JobError };
  return 'error' in answer ? answer.error : answer;
}
