/* Signals that end a command are noted, so that it can end what it has started, say what it has, and only then obey. */
#ifndef WEFT_TOOL_SIGNALS_H
#define WEFT_TOOL_SIGNALS_H

void signals_watch(void); /* from now on SIGINT, SIGTERM and SIGHUP are noted, unless they were ignored */
int signals_caught(void); /* the last one that came; 0: none */
void signals_obey(void);  /* ends this process by it, if one came, after what is printed is written */
#endif
