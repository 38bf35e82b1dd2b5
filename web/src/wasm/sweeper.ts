// A sweep over several workers, in small pieces: progress is seen, and cancelling is at once.
import { readCell, variantAt, type Cells, type Grid } from '../state/sweep';
import type { Result } from './ask';
import { Helper } from './helper';

/** Cells that one worker is asked about at once: about a tenth of a second, so that it seldom waits for the page. */
const PIECE = 32;
/** More have little left to do, and each takes memory for a core. */
const MOST_WORKERS = 8;

export class Sweeper {
  private helpers: Helper[] = [];
  private turn = 0;

  /** Fills the cells and tells after each piece; resolves with false where another sweep or `cancel` ended it. */
  async run(base: Result, grid: Grid, cells: Cells, told: () => void): Promise<boolean> {
    const turn = ++this.turn;
    const count = Math.min(MOST_WORKERS, navigator.hardwareConcurrency || 2);
    while (this.helpers.length < count) this.helpers.push(new Helper());
    const left = cells.flatMap((cell, index) => (cell === undefined ? [index] : []));
    const work = async (helper: Helper): Promise<void> => {
      while (left.length > 0 && turn === this.turn) {
        const piece = left.splice(0, PIECE);
        const variants = piece.map((index) => variantAt(base.setup, base.model, grid, index));
        const answers = await helper.ask({ ask: 'summary', job: base.job, variants });
        if (turn !== this.turn) return;
        piece.forEach((index, i) => (cells[index] = readCell(answers[i] ?? '')));
        told();
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
