export const untimed: (report: string) => string;
