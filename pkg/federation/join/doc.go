// Package join brings a cluster into the fleet and takes it out again.
//
//	Join:   member admin -> identities in the member (pure: MemberObjects)
//	        -> tokens -> Secrets -> Cluster -> wait for Ready -> what is unmanaged
//	Unjoin: Cluster -> marks off (or copies deleted) -> identities -> Secrets
//
// Both can be interrupted anywhere and run again. In a member nothing is
// touched that a join did not make or the federation did not mark. Joining
// changes nothing in a member but our identities.
package join
