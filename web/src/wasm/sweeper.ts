// A sweep over several workers.
import { readCell, variantAt, type Cells, type Grid } from '../state/sweep';
import type { Result } from './ask';
import { Pool } from './pool';

/** Cells that one worker is asked about at once: about a tenth of a second, so that it seldom waits for the page. */
const PIECE = 32;

export class Sweeper extends Pool {
  /** Fills the cells and tells after each piece; resolves with false where another sweep or `cancel` ended it. */
  sweep({ job, setup, model }: Result, grid: Grid, cells: Cells, told: () => void): Promise<boolean> {
    const variant = (index: number): object => variantAt(setup, model, grid, index);
    return this.run({ ask: 'summary', job }, cells.length, PIECE, variant, (answers) => {
      for (const { index, json } of answers) cells[index] = readCell(json);
      told();
    });
  }
}
