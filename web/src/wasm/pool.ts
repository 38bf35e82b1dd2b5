// Many questions over several workers, in small pieces: progress is seen, and cancelling is at once.
import { Helper } from './helper';
import type { Question } from './serve';

/** More have little left to do, and each takes memory for a core. */
const MOST_WORKERS = 8;

export class Pool {
  private helpers: Helper[] = [];
  private turn = 0;

  /** Asks for the variants and tells each piece's answers; resolves with false where another run or `cancel` ended it. */
  async run(
    { ask, job }: Omit<Question, 'variants'>,
    count: number,
    piece: number,
    variantAt: (index: number) => object,
    told: (answers: readonly { index: number; json: string }[]) => void,
  ): Promise<boolean> {
    const turn = ++this.turn;
    const workers = Math.min(MOST_WORKERS, navigator.hardwareConcurrency || 2);
    while (this.helpers.length < workers) this.helpers.push(new Helper());
    let next = 0;
    const work = async (helper: Helper): Promise<void> => {
      while (next < count && turn === this.turn) {
        const first = next;
        next = Math.min(count, first + piece);
        const indices = Array.from({ length: next - first }, (_, i) => first + i);
        const answers = await helper.ask({ ask, job, variants: indices.map(variantAt) });
        if (turn !== this.turn) return;
        told(indices.map((index, i) => ({ index, json: answers[i] ?? '' })));
      }
    };
    await Promise.all(this.helpers.map(work));
    return turn === this.turn;
  }

  /** What is asked already, a small piece for each worker, is not told. */
  cancel(): void {
    this.turn++;
  }

  stop(): void {
    this.cancel();
    for (const helper of this.helpers) helper.stop();
    this.helpers = [];
  }
}
