// Package explain says what was decided about a template and why: the policy that
// speaks for it, the clusters and those left out, what is overridden, what each
// cluster is told, and where what is there differs.
//
//	endpoint -> Gather -> Facts -> Judge (pure) -> Report -> text or YAML
//
// It reads as the user who asks, members through the endpoint, and writes nothing.
package explain
