"""Reference audio to a voice: enrolment, quality, consent, and the `.voice` file."""
