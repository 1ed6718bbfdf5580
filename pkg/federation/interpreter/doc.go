// Package interpreter knows what objects of a kind mean: how many replicas they
// have, whether they are healthy, what they need, what a member may keep of its
// own, what one status is made of.
//
//	ResourceInterpreterCustomizations of users -\
//	built-in knowledge                           > first that has the operation
//	customizations that are shipped             -/
//
// It decides and writes nothing. Scripts run in package sandbox; what goes wrong
// in one is an error that names it, never a default.
package interpreter
