/**
 * A report of the command as the module writes it, which has no times: without the member `time`, the last, and without what is
 * noted of it, the last of the notes.
 */
export const untimed = (report) =>
  report.replace(/,"time":(null|\{.*\})\}$/, "}").replace(/,?"(No t|T)ime: ([^"\\]|\\.)*"/g, "");
