// The widget of the npm package. Until setSite names a page, it shows no links to one.
import { setSite } from '../format/links';
import './widget';

export { OometerWidget } from './widget';
export { setSite };

setSite(null);
