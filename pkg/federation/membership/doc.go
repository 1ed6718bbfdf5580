// Package membership turns Cluster objects and their Secrets into a Directory
// of members that others can use, and keeps the status of the Clusters true.
//
//	Cluster, Secret (informers) -> access (pure) -> link: two rest.Configs
//	link: probe every 10 s -> observation -> Health (pure) -> conditions (pure)
//	                                                       -> Cluster status
//	Cluster + link -> Member -> Directory -> subscribers
//
// A member's identity is the UID of its kube-system namespace. The transports
// of the configs that are handed out refuse to send anything until the member
// has shown that UID, and ask again after every broken connection: another
// cluster behind a known address is never read from nor written to.
//
// Tokens are read for each request, so that a rotated one is followed without
// a new config; a changed address, CA or client certificate makes a new config,
// which subscribers learn by a Change.
package membership
