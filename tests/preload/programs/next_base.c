/* The function that others interpose. */
const char *who_are_you(void) { return "base"; }
