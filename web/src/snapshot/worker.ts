// Reads a snapshot beside the page: progress, then its history or a sentence that says why not.
import { reason } from '../format/reason';
import { readHistory, type History } from './history';
import { readPickle } from './pickle';

export type Message = { read: number } | { history: History } | { problem: string };

const tell = (message: Message): void => {
  postMessage(message);
};

addEventListener('message', ({ data }: MessageEvent<File | Uint8Array>) => {
  const bytes =
    data instanceof Uint8Array ? Promise.resolve(data) : data.arrayBuffer().then((buffer) => new Uint8Array(buffer));
  bytes
    .then((content) => {
      const value = readPickle(content, (read) => {
        tell({ read });
      });
      tell({ history: readHistory(value) });
    })
    .catch((error: unknown) => {
      tell({ problem: reason(error) });
    });
});
