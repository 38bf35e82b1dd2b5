import { expect, it } from 'vitest';
import { csv, markdown, tabbed } from './table';

const rows = [
  ['Held for', 'GiB'],
  ['a|b, "c"', '1.50'],
];

it('writes tables that other programs read', () => {
  expect(tabbed(rows)).toBe('Held for\tGiB\na|b, "c"\t1.50\n');
  expect(markdown(rows)).toBe('| Held for | GiB |\n| --- | ---: |\n| a\\|b, "c" | 1.50 |\n');
  expect(csv(rows)).toBe('Held for,GiB\r\n"a|b, ""c""",1.50\r\n');
});
