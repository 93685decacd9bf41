/* Signals that end a command are noted, so that it can first end what it has started and print what it has. */
#ifndef WEFT_TOOL_SIGNALS_H
#define WEFT_TOOL_SIGNALS_H

void signals_watch(void); /* from now on SIGINT, SIGTERM and SIGHUP are noted, unless they were ignored */
int signals_caught(void); /* the last one that came; 0: none */
void signals_obey(void);  /* if a signal came: flushes the output and ends this process by the signal */
#endif
