/** Without the member `host`, a section of a report: the module has it where a job states its machine's memory alone. */
function withoutHost(report) {
  const begin = report.indexOf(',"host":{');
  if (begin < 0) return report;
  let depth = 0;
  let end = begin + ',"host":'.length;
  do {
    if (report[end] === "{") depth++;
    if (report[end] === "}") depth--;
    end++;
  } while (depth > 0);
  return report.slice(0, begin) + report.slice(end);
}

/**
 * A report of the command as the module writes it, which has no times: without the member `time`, the last, and without what is
 * noted of it, the last of the notes; and without the host's memory.
 */
export const untimed = (report) =>
  withoutHost(report).replace(/,"time":(null|\{.*\})\}$/, "}").replace(/,?"(No t|T)ime: ([^"\\]|\\.)*"/g, "");
