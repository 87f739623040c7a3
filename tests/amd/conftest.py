"""No kernel of this folder's tests has a warning."""

from tests.hazards import no_false_alarm as no_false_alarm
