// What the core makes of a trainer's own files. All sizes are bytes.
import type { Job } from '../state/job.generated';
import type { JobError } from './report';

/** A file as somebody gave it: the tree of JSON or YAML, or the text of a script. */
export interface SourceFile {
  name: string;
  content: unknown;
}

/** A value of the job, and their key that led to it. */
export interface Taken {
  /** "" where no file says it. */
  file: string;
  key: string;
  pointer: string;
  value: unknown;
  from: 'file' | 'default';
  /** Of a default: where it stands in the trainer's source. */
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

export function readImported(json: string): Imported | JobError {
  const answer = JSON.parse(json) as Imported | { error: JobError };
  return 'error' in answer ? answer.error : answer;
}
