// What the views `timeline` and `full` show beside the sentence and the bar: loaded when one of them is asked for.
import '../components/holders';
import '../components/phases';
import '../components/timeline';
