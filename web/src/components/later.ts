// What stands further below: fetched once the answer and what is beside it are drawn.
import './advice';
import './checkpoints';
import './compare';
import './configuration';
import './gpus';
import './host';
import './orders';
import './own-model';
import './remedy';
import './serving';
import './share';
import './sweep';
import './tensors';
import './time';
import './trust';

export { fixesOf } from '../state/fixes';
export { told } from '../state/told';
export { default as hub } from 'virtual:hub-models';
export { identify } from '../state/dropped';
export { setupOfJob } from '../state/job-setup';
