/* A doubly linked list in a ring: a head and the nodes, which are parts of what is listed. Every call takes the same
 * time, however long the list is. */
#ifndef WEFT_BASE_LIST_H
#define WEFT_BASE_LIST_H
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *previous; /* NULL: a head that is not begun, or a node that is in no list */
};

/* The struct of which the node is the member. */
#define LIST_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void list_begin(struct list *head)
{
    head->next = head->previous = head;
}

static inline bool list_empty(const struct list *head)
{
    return !head->next || head->next == head;
}

/* The first node; NULL: there is none. */
static inline struct list *list_first(const struct list *head)
{
    return list_empty(head) ? NULL : head->next;
}

/* The node after this one; NULL: it is the last. */
static inline struct list *list_after(const struct list *head, const struct list *node)
{
    return node->next == head ? NULL : node->next;
}

static inline bool list_has(const struct list *node) /* is the node in a list? */
{
    return node->next != NULL;
}

static inline void list_append(struct list *head, struct list *node)
{
    node->next = head;
    node->previous = head->previous;
    head->previous->next = node;
    head->previous = node;
}

/* Takes the node out of its list. A node that is in none stays as it is. */
static inline void list_remove(struct list *node)
{
    if (!node->next)
        return;
    node->next->previous = node->previous;
    node->previous->next = node->next;
    node->next = node->previous = NULL;
}
#endif
