// Light or dark: the system's choice until somebody presses the button.

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'oometer-theme';

/** The next one, in an order that makes the first press always change what is seen. */
export function nextTheme(theme: Theme, systemIsDark: boolean): Theme {
  const order: Theme[] = systemIsDark ? ['system', 'light', 'dark'] : ['system', 'dark', 'light'];
  return order[(order.indexOf(theme) + 1) % order.length] ?? 'system';
}

export function loadTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === 'light' || stored === 'dark' ? stored : 'system';
  } catch {
    return 'system'; // storage may be refused
  }
}

export function applyTheme(theme: Theme): void {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The choice then holds for this visit only.
  }
}
