// Package memberkinds keeps in the control plane the CustomResourceDefinitions of
// kinds whose objects live in the members only, so that discovery, explain and
// RBAC come free. The router diverts their requests before the control plane's
// storage is reached.
//
//	Files                                  -> installed at start
//	members' definitions -> Decide -> Importer -> the control plane
//	the control plane's definitions -> Printer -> columns of Tables
package memberkinds

import "embed"

// Files holds the manifests.
//
//go:embed *.yaml
var Files embed.FS
