// A table as people see it, as text that other programs read.

export type Cells = readonly (readonly string[])[];

/** What stands in a drawn table. Figures are copied as shown; their exact values are in the report's JSON. */
export function cellsOf(table: HTMLTableElement): string[][] {
  return Array.from(table.rows, (row) =>
    Array.from(row.cells, (cell) => (cell.dataset.copy ?? cell.textContent).replaceAll(/\s+/g, ' ').trim()),
  );
}

/** For a spreadsheet: a paste fills cells. */
export function tabbed(rows: Cells): string {
  return rows.map((row) => row.join('\t')).join('\n') + '\n';
}

/** For a design document. The first row is the heading. */
export function markdown(rows: Cells): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  const [head = [], ...body] = rows;
  return [line(head), line(head.map((_, i) => (i === 0 ? '---' : '---:'))), ...body.map(line)].join('\n') + '\n';
}

export function csv(rows: Cells): string {
  const cell = (text: string): string => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';
}
