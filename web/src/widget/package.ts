// The widget in the npm package, which knows of no page that its links could lead to until it is told of one.
import { setSite } from '../format/links';
import './widget';

export { OometerWidget } from './widget';
export { setSite };

setSite(null);
