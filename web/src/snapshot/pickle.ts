// Reads a pickle of plain data and nothing else: numbers, text, lists, tuples, dicts with text for keys. Whatever would
// name or call Python code is an error, so that nothing in a file can run.

export type Plain = null | boolean | number | string | Plain[] | { [key: string]: Plain };

const MARK = Symbol('mark');

/** Where the reading stopped, and everything that was being built. */
export class PickleError extends Error {
  constructor(
    message: string,
    readonly at: number,
  ) {
    super(`${message} (at byte ${at}).`);
  }
}

/** `progress` is told now and then how many bytes were read. */
export function readPickle(bytes: Uint8Array, progress: (read: number) => void = () => undefined): Plain {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const stack: (Plain | typeof MARK)[] = [];
  const marks: number[] = [];
  const memo: Plain[] = [];
  let at = 0;
  let start = 0;

  const fail = (message: string): never => {
    throw new PickleError(message, start);
  };
  if (bytes[0] !== 0x80) fail('The file is no pickle of protocol 2 or later');
  const take = (count: number): number => {
    if (count > bytes.length - at) fail('The file ends too early: it was cut off');
    at += count;
    return at - count;
  };
  const pop = (): Plain => {
    const value = stack.pop();
    return value === undefined || value === MARK ? fail('The file is damaged') : value;
  };
  const top = (): Plain => {
    const value = stack[stack.length - 1];
    return value === undefined || value === MARK ? fail('The file is damaged') : value;
  };
  const sinceMark = (): Plain[] => {
    const mark = marks.pop() ?? fail('The file is damaged');
    const values = stack.splice(mark + 1) as Plain[];
    stack.pop();
    return values;
  };
  const text = (length: number): string => {
    const from = take(length);
    try {
      return decoder.decode(bytes.subarray(from, at));
    } catch {
      return fail('Text in the file is not UTF-8');
    }
  };
  const integer = (length: number): number => {
    const from = take(length);
    let value = 0;
    for (let i = length - 1; i >= 0; i--) value = value * 256 + (bytes[from + i] ?? 0);
    const negative = length > 0 && ((bytes[at - 1] ?? 0) & 0x80) !== 0;
    return negative ? value - 256 ** length : value;
  };
  const put = (target: Plain, key: Plain, value: Plain): void => {
    if (typeof target !== 'object' || target === null || Array.isArray(target)) return fail('The file is damaged');
    if (typeof key !== 'string' && typeof key !== 'number') return fail('A key of the file is no text');
    if (key === '__proto__') return fail('A key of the file is not one of a snapshot');
    target[key] = value;
  };
  const append = (values: Plain[]): void => {
    const list = top();
    if (!Array.isArray(list)) return fail('The file is damaged');
    for (const value of values) list.push(value);
  };
  const remember = (index: number): void => {
    if (index > bytes.length) fail('The file is damaged');
    memo[index] = top();
  };
  const recall = (index: number): void => {
    const value = memo[index];
    stack.push(value === undefined ? fail('The file is damaged') : value);
  };

  let next = 0;
  for (;;) {
    if (at >= next) {
      progress(at);
      next = at + (1 << 20);
    }
    start = at;
    const code = bytes[take(1)] ?? 0;
    switch (code) {
      case 0x80: // PROTO
        if ((bytes[take(1)] ?? 0) > 5) fail('The file is of a newer protocol than 5');
        break;
      case 0x95: // FRAME
        take(8);
        break;
      case 0x2e: {
        // STOP
        const value = pop();
        if (stack.length > 0) fail('The file is damaged');
        progress(at);
        return value;
      }
      case 0x28: // MARK
        marks.push(stack.length);
        stack.push(MARK);
        break;
      case 0x4e:
        stack.push(null);
        break; // NONE
      case 0x88:
        stack.push(true);
        break; // NEWTRUE
      case 0x89:
        stack.push(false);
        break; // NEWFALSE
      case 0x4b:
        stack.push(bytes[take(1)] ?? 0);
        break; // BININT1
      case 0x4d:
        stack.push(view.getUint16(take(2), true));
        break; // BININT2
      case 0x4a:
        stack.push(view.getInt32(take(4), true));
        break; // BININT
      case 0x8a:
        stack.push(integer(bytes[take(1)] ?? 0));
        break; // LONG1
      case 0x47:
        stack.push(view.getFloat64(take(8)));
        break; // BINFLOAT
      case 0x8c:
        stack.push(text(bytes[take(1)] ?? 0));
        break; // SHORT_BINUNICODE
      case 0x58:
        stack.push(text(view.getUint32(take(4), true)));
        break; // BINUNICODE
      case 0x7d:
        stack.push({});
        break; // EMPTY_DICT
      case 0x5d:
        stack.push([]);
        break; // EMPTY_LIST
      case 0x29:
        stack.push([]);
        break; // EMPTY_TUPLE
      case 0x74:
        stack.push(sinceMark());
        break; // TUPLE
      case 0x6c:
        stack.push(sinceMark());
        break; // LIST
      case 0x85:
        stack.push([pop()]);
        break; // TUPLE1
      case 0x86: {
        const b = pop();
        stack.push([pop(), b]);
        break;
      } // TUPLE2
      case 0x87: {
        const c = pop();
        const b = pop();
        stack.push([pop(), b, c]);
        break;
      } // TUPLE3
      case 0x61: {
        const value = pop();
        append([value]);
        break;
      } // APPEND
      case 0x65:
        append(sinceMark());
        break; // APPENDS
      case 0x73: {
        const value = pop();
        const key = pop();
        put(top(), key, value);
        break;
      } // SETITEM
      case 0x75: {
        // SETITEMS
        const pairs = sinceMark();
        const target = top();
        if (pairs.length % 2 !== 0) fail('The file is damaged');
        for (let i = 0; i < pairs.length; i += 2) put(target, pairs[i] ?? null, pairs[i + 1] ?? null);
        break;
      }
      case 0x94:
        memo.push(top());
        break; // MEMOIZE
      case 0x71:
        remember(bytes[take(1)] ?? 0);
        break; // BINPUT
      case 0x72:
        remember(view.getUint32(take(4), true));
        break; // LONG_BINPUT
      case 0x68:
        recall(bytes[take(1)] ?? 0);
        break; // BINGET
      case 0x6a:
        recall(view.getUint32(take(4), true));
        break; // LONG_BINGET
      case 0x63:
      case 0x93:
      case 0x52:
      case 0x62:
      case 0x69:
      case 0x6f:
      case 0x81:
      case 0x92:
      case 0x50:
      case 0x51:
      case 0x82:
      case 0x83:
      case 0x84: // GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, PERSID, EXT and their like
        return fail(
          'The file asks to run Python code, which a memory snapshot never does. It was not run, and not read on',
        );
      default:
        return fail('This is no pickle of plain data, as torch.cuda.memory._dump_snapshot writes it');
    }
  }
}
