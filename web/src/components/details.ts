// What stands below the answer. The page fetches it with everything else, and runs it once the answer is painted.
import './advice';
import './checkpoints';
import './compare';
import './holders';
import './phases';
import './share';
import './sweep';
import './tensors';
import './trust';
