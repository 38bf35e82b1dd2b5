// Makes the TypeScript types of a job from the schema that the core publishes, so that the two cannot drift apart.
import { writeFileSync } from 'node:fs';
import { compileFromFile } from 'json-schema-to-typescript';

const schema = new URL('../../presets/job.schema.json', import.meta.url).pathname;
const target = new URL('../src/state/job.generated.ts', import.meta.url).pathname;
const types = await compileFromFile(schema, {
  additionalProperties: false,
  bannerComment: '// Generated from presets/job.schema.json by scripts/job-types.js.',
  style: { singleQuote: true, printWidth: 120 },
});
writeFileSync(target, types);
