package v1alpha1

// CredentialsNamespace is the namespace of the control plane that holds the
// credentials of members. It is never propagated, and a Cluster may not refer
// to a Secret elsewhere: whoever may create a Cluster could otherwise have any
// Secret sent to an address of their choice.
const CredentialsNamespace = "isthmus-system"

// MemberNamespace is the namespace in a member that holds our identities.
const MemberNamespace = "isthmus-system"

// FenceName is the ConfigMap of the fence: of the record in the control plane,
// in CredentialsNamespace, and of the mark in a member, in MemberNamespace.
const FenceName = "isthmus-fence"

// The two identities in a member.
const (
	// ReadServiceAccount reads and routes.
	ReadServiceAccount = "isthmus-read"
	// ApplyServiceAccount writes what is propagated.
	ApplyServiceAccount = "isthmus-apply"
	// ApplySecretSuffix makes the name of the apply identity's Secret out of
	// the cluster's name. Cluster names must not end in it.
	ApplySecretSuffix = "-apply"
	// CustomRole is the ClusterRole in a member with the rights of the apply
	// identity on custom resources.
	CustomRole = "isthmus-apply-custom"
)

// Keys in a credential Secret.
const (
	// SecretTokenKey holds a bearer token.
	SecretTokenKey = "token"
	// SecretCADataKey holds the CA of the member's API, as Karmada has it.
	SecretCADataKey = "caBundle"
	// SecretCACertKey is accepted in place of SecretCADataKey.
	SecretCACertKey = "ca.crt"
	// SecretClientCertKey and SecretClientKeyKey hold a client certificate.
	SecretClientCertKey = "tls.crt"
	SecretClientKeyKey  = "tls.key"
	// SecretServerNameKey overrides the name that the member's serving
	// certificate is checked against.
	SecretServerNameKey = "tlsServerName"
)

// Annotations and labels of Clusters and credential Secrets.
const (
	// JoinOrderAnnotation is the persisted join order, decimal.
	JoinOrderAnnotation = "isthmus.dev/join-order"
	// AbsentAnnotation "true" declares a member absent: LISTs no longer wait
	// for it.
	AbsentAnnotation = "isthmus.dev/absent"
	// EverSyncedAnnotation "true" is set when a cache has once loaded the
	// member in full.
	EverSyncedAnnotation = "isthmus.dev/ever-synced"
	// MemberLabel on a credential Secret names the member.
	MemberLabel = "isthmus.dev/member"
	// IdentityLabel marks every object that a join created: "read", "apply"
	// or "shared".
	IdentityLabel = "isthmus.dev/identity"
	// EndpointAnnotation on a credential Secret is the member's address, so
	// that an unjoin can go on after the Cluster is gone.
	EndpointAnnotation = "isthmus.dev/api-endpoint"
	// MemberUIDAnnotation on a credential Secret is the member's identity.
	MemberUIDAnnotation = "isthmus.dev/member-uid"
	// ServiceAccountAnnotation "NAMESPACE/NAME" on a credential Secret asks
	// for its token to be rotated before it expires.
	ServiceAccountAnnotation = "isthmus.dev/service-account"
	// TokenLifetimeAnnotation is the lifetime to ask for, as a Go duration.
	TokenLifetimeAnnotation = "isthmus.dev/token-lifetime"
)

// Condition types of a Cluster.
const (
	// ClusterConditionReady says that the member's API answers with success
	// and is the cluster that joined.
	ClusterConditionReady = "Ready"
	// ClusterConditionCacheSynced says that its objects are loaded and live.
	ClusterConditionCacheSynced = "CacheSynced"
	// ClusterConditionCredentialsValid says that the member accepts our
	// credentials; the message warns before they expire.
	ClusterConditionCredentialsValid = "CredentialsValid"
	// ClusterConditionCompleteAPIEnablements says whether
	// status.apiEnablements lists all that the member serves.
	ClusterConditionCompleteAPIEnablements = "CompleteAPIEnablements"
)

// Reasons of the conditions.
const (
	ReasonClusterReady        = "ClusterReady"
	ReasonClusterNotReady     = "ClusterNotReady"
	ReasonClusterNotReachable = "ClusterNotReachable"
	ReasonIdentityChanged     = "IdentityChanged"
	ReasonDuplicateIdentity   = "DuplicateIdentity"
	ReasonUnauthorized        = "Unauthorized"
	ReasonForbidden           = "Forbidden"
	ReasonInvalidCredentials  = "InvalidCredentials"
	ReasonCredentialsValid    = "CredentialsValid"
	ReasonCredentialsExpiring = "CredentialsExpiring"
	ReasonCredentialsExpired  = "CredentialsExpired"
	ReasonSynced              = "Synced"
	ReasonNotSynced           = "NotSynced"
	ReasonFullAPIs            = "FullAPIEnablements"
	ReasonPartialAPIs         = "PartialAPIEnablements"
	ReasonEmptyAPIs           = "EmptyAPIEnablements"
)
