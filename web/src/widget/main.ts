// The widget as one script for foreign pages: `<script type="module" src=".../widget.js">`.
import { setSite } from '../format/links';
import './widget';

// Links must lead to where this script came from, not to the page that it is used in. It lies in the site's assets.
setSite(new URL(/* @vite-ignore */ '..', import.meta.url).href);
