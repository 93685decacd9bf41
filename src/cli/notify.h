/* What a service tells the program that has started it. */
#ifndef WEFT_CLI_NOTIFY_H
#define WEFT_CLI_NOTIFY_H
/* Tells systemd, or whichever program has set NOTIFY_SOCKET, how this process is: "READY=1", "STOPPING=1". */
void notify_send(const char *state);
#endif
