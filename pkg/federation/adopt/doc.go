// Package adopt decides how objects that run in members already are taken over
// in place: same UIDs, no restarts.
//
//	engine:  live object + answer to a dry run -> Judge (refuse with a diff)
//	         -> Move (ownership of what the template speaks of becomes ours)
//	         -> first apply
//	command: copies in clusters -> Plan (template, policy, overrides, or why
//	         not)
//
// Pure functions: objects in, decision out.
package adopt
