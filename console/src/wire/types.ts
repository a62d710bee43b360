// Written by console/generate_types.py from the server's messages; a change by hand is lost.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type ErrorCode =
  | "auth_rejected"
  | "identity_required"
  | "identity_scope_required"
  | "invalid_request"
  | "not_found"
  | "payload_invalid"
  | "presign_unsupported"
  | "request_too_large"
  | "runtime_error"
  | "scope_mismatch"
  | "unknown_method";

/** How an agent is set. */
export interface AgentConfig {
  planner_type: string;
  planner_config?: Record<string, string>;
  model: string;
  model_policy?: Record<string, string>;
  max_steps: number;
}

/** How many agents there are by status, over the filtered ones. */
export interface AgentCounts {
  total: number;
  active: number;
  paused: number;
  drained: number;
}

/** The answer to `agents.get`. */
export interface AgentDetail {
  agent: AgentRow;
  config: AgentConfig;
  agent_card_ref?: string;
}

/** Which agents to list; what is empty narrows nothing. */
export interface AgentFilter {
  status?: string[];
  planner_type?: string[];
  search?: string;
}

/** The answer to `agents.governance`. */
export interface AgentGovernance {
  agent_id: string;
  governance: GovernanceBinding;
}

/** The request of `agents.list`. */
export interface AgentListRequest {
  identity?: IdentityScope;
  filter?: AgentFilter;
  page?: number;
  page_size?: number;
}

/** The answer to `agents.memory`. */
export interface AgentMemory {
  agent_id: string;
  binding: MemoryBinding;
}

/** The answer to `agents.metrics`. */
export interface AgentMetrics {
  metrics: AgentTotals;
}

/** The answer to `agents.list`. */
export interface AgentPage {
  agents: AgentRow[];
  page: number;
  page_size: number;
  page_count: number;
  total_rows: number;
  aggregates: AgentCounts;
}

/** The answer to `agents.permissions`. */
export interface AgentPermissions {
  agent_id: string;
  permissions: Permissions;
}

/** An agent as lists show it. Times are of whole seconds. */
export interface AgentRow {
  id: string;
  name: string;
  description: string;
  incarnation: number;
  version_hash: string;
  owner: string;
  status: string;
  health: string;
  hosting: string;
  planner_type: string;
  model: string;
  tools_count: number;
  mcp_count: number;
  registered_at: string;
  updated_at: string;
}

/** The answer to `agents.skills`. */
export interface AgentSkills {
  agent_id: string;
  skills: SkillBinding[];
}

/** The answer to `agents.tools`. */
export interface AgentTools {
  agent_id: string;
  bindings: ToolBinding[];
}

/** What the agents do for the caller, and what that came to. */
export interface AgentTotals {
  active_agents: number;
  running_tasks: number;
  total_cost_usd: number;
  total_tokens: number;
}

/** Asks for the counts of the last `window` in slices of `bucket`, both in nanoseconds. */
export interface AggregateEvents {
  identity?: IdentityScope;
  filter?: EventFilter;
  window?: number;
  bucket?: number;
}

/** The answer of `tools.set_approval_policy`. */
export interface ApprovalPolicySet {
  id: string;
  policy: string;
}

/** The answer of `artifacts.get_ref`; `url` is `presigned_url` once more, under the name that some clients read. */
export interface ArtifactLinked {
  protocol_version: string;
  ref: OwnedReference;
  presigned_url: string;
  url: string;
  expires_at: string;
}

/** A reference to an artifact, without its owner. */
export interface ArtifactReference {
  id: string;
  mime_type?: string;
  size_bytes?: number;
  filename?: string;
  sha256?: string;
}

/** One row of a list. */
export interface ArtifactRow {
  ref: OwnedReference;
  driver: string;
  created_at: string;
  tags?: string[];
  source?: string;
}

/** The answer of `artifacts.put`. */
export interface ArtifactStored {
  protocol_version: string;
  ref: OwnedReference;
}

/** The answer of `artifacts.list`, newest first; `total_matched` counts what the limit cut off, too. */
export interface ArtifactsListed {
  protocol_version: string;
  rows: ArtifactRow[];
  total_matched: number;
}

/** One call of the model: `messages` are those after the first `unchanged`, which are those of the call before. */
export interface AskRow {
  model: string;
  unchanged: number;
  messages: PromptMessage[];
  tools: PromptTool[];
  settings: Record<string, Json>;
  window_tokens: number;
  tokens: Tokens;
  usd: number;
  latency_ms: number;
  answer: ModelAnswer;
  error: ErrorOf;
}

/** How many sign-ins there are of one scope. */
export interface BindingCount {
  binding_scope: string;
  count: number;
}

/** A request about the sign-in of one principal at a server. */
export interface BindingNamed {
  identity?: IdentityScope;
  name?: string;
  principal_id?: string;
}

/** The answer of `mcp.servers.revoke_binding`. */
export interface BindingRevoked {
  protocol_version: string;
  revoked: boolean;
}

/** The sign-in of one principal, without its tokens. */
export interface BindingView {
  principal_id: string;
  binding_scope: string;
  scopes: string[];
  expires_at: string;
  last_used_at: string;
}

/** The answer of `mcp.servers.bindings.list`. */
export interface BindingsListed {
  protocol_version: string;
  bindings: BindingView[];
}

/** What the runs of a flow have used. */
export interface BudgetConsumption {
  requests_used: number;
  cost_usd_used: number;
  tokens_used: number;
}

/** A call that a model wants made. */
export interface CallOfModel {
  id: string;
  name: string;
  args: Json;
}

/** A call of a tool; `branch` counts from 1 in a parallel step. The whole values are there in a single step only. */
export interface CallRow {
  call_id: string;
  tool: string;
  branch: number;
  side_effect: string;
  status: string;
  attempts: number;
  key: string;
  started_at: string;
  ended_at: string;
  error: ErrorOf;
  args_preview: string;
  result_preview: string;
  args: Json;
  args_cut: CutValue;
  result: Json;
  result_cut: CutValue;
  masked: boolean;
}

/** A value that two steps do not have in common; absent on the side that lacks it. */
export interface Change {
  path: string;
  left: Json;
  right: Json;
}

/** A run that a step started. */
export interface ChildRow {
  id: string;
  kind: string;
  agent_name: string;
  description: string;
}

/** Two runs side by side, from the first step that they do not share; `diff` is for people. */
export interface CompareAnswer {
  protocol_version: string;
  runs: RunHeader[];
  shared_steps: number;
  difference: DifferenceRow;
  rows: ComparedRow[];
  more: boolean;
  diff: string;
}

/** Two runs, and which of their steps that are not alike: as for the steps of one. */
export interface CompareRequest {
  identity?: IdentityScope;
  id?: string;
  other?: string;
  after?: number;
  limit?: number;
}

/** The steps of the same number of two runs. */
export interface ComparedRow {
  left: StepRow;
  right: StepRow;
  same: boolean;
  changes: Change[];
}

/** A control was queued, or was before; events say what becomes of it. */
export interface ControlAccepted {
  protocol_version: string;
  accepted: boolean;
  method: string;
}

/** Send a control to the run that `identity.run` names, in the scope that `identity.scope` asks for. */
export interface ControlRequest {
  identity?: IdentityScope;
  payload?: Record<string, Json> | null;
  event_id?: string;
}

/** A control that was sent to the run; `step` is the one before which it was applied. */
export interface ControlRow {
  type: string;
  event_id: string;
  at: string;
  by: WireIdentity;
  outcome: string;
  err: string;
  step: number;
}

/** The events of one slice by type; `bucket_end` is not included. */
export interface CountedBucket {
  bucket_start: string;
  bucket_end: string;
  counts: Record<string, number>;
}

/** Bounds of a time of creation, both included. */
export interface CreatedRange {
  after?: string | null;
  before?: string | null;
}

/** What stands for a value that is too large to be shown. `bytes` is the length of its JSON. */
export interface CutValue {
  preview: string;
  bytes: number;
  artifact_ref: ReferenceOf;
}

/** `flows.describe`. */
export interface DescribeFlow {
  identity?: IdentityScope;
  id?: string;
}

/** `flows.runs.describe`. */
export interface DescribeFlowRun {
  identity?: IdentityScope;
  run_id?: string;
}

/** The first difference between two runs, or a run and its replay; step 0 is before the first. */
export interface DifferenceRow {
  step: number;
  kind: string;
  what: string;
  path: string;
  diff: string;
}

/** The answer of `mcp.servers.refresh_discovery`. */
export interface Discovered {
  protocol_version: string;
  discovery_id: string;
  tool_count: number;
  resource_count: number;
  prompt_count: number;
}

/** One message of what was said before a run: a text, or a call of a `tool` with its `args` as JSON. */
export interface EarlierMessage {
  role: "assistant" | "tool" | "user";
  text?: string;
  tool?: string;
  args?: string;
}

/** The body of a refusal. */
export interface ErrorBody {
  code: string;
  message: string;
}

/** What went wrong, by the name of its class and in words. */
export interface ErrorOf {
  class: string;
  message: string;
}

/** Which events to count. Blank names are skipped; no tenants, users or sessions are the caller's own. `since` is included, `until` is not. */
export interface EventFilter {
  event_types?: string[];
  tenant_ids?: string[];
  user_ids?: string[];
  session_ids?: string[];
  run_ids?: string[];
  since?: string | null;
  until?: string | null;
}

/** The buckets, oldest first, empty ones included. */
export interface EventsAggregated {
  protocol_version: string;
  buckets: CountedBucket[];
}

/** A property that the found things of one index must have, such as `tasks.status`. */
export interface Facet {
  key?: string;
  value?: string;
}

/** What the runs came to that began within one stretch of time. */
export interface FlowBucket {
  bucket_start: string;
  runs: number;
  p95_latency_ms: number;
  success_rate: number;
  cost_usd: number;
}

/** What one run of a flow may use; absent where it is not limited. */
export interface FlowBudget {
  deadline_ms?: number;
  request_cap?: number;
  cost_cap_usd?: number;
  token_cap?: number;
}

/** The answer of `flows.describe`. */
export interface FlowDescribed {
  flow: FlowRow;
  nodes: FlowNode[];
  edges: FlowEdge[];
  budget_consumption: BudgetConsumption;
  source: string;
}

/** One edge of a flow. */
export interface FlowEdge {
  from: string;
  to: string;
}

/** Which flows; `query` is a part of name or owner. */
export interface FlowFilterParts {
  tenants?: string[];
  planner_families?: string[];
  query?: string;
}

/** The answer of `flows.metrics`, oldest bucket first. */
export interface FlowMeasured {
  flow_id: string;
  window_start: string;
  window_end: string;
  buckets: FlowBucket[];
  budget_consumption: BudgetConsumption;
}

/** One node of a flow. */
export interface FlowNode {
  id: string;
  type: NodeType;
  descriptor: string;
  policy: NodePolicy;
}

/** One flow, with what its runs of the last day came to; `success_rate` is from 0 to 1. */
export interface FlowRow {
  id: string;
  name: string;
  node_count: number;
  edge_count: number;
  runs_24h: number;
  p50_latency_ms: number;
  p95_latency_ms: number;
  success_rate: number;
  last_run: string;
  budget: FlowBudget;
  owner: string;
  version: string;
  planner_family: string;
}

/** The answer of `flows.runs.describe`; a large output is an artifact. */
export interface FlowRunDescribed {
  run: FlowRunRow;
  node_states: NodeState[];
  output_preview: string;
  output_ref: ArtifactReference;
}

/** One run of a flow. */
export interface FlowRunRow {
  run_id: string;
  flow_id: string;
  status: FlowStatus;
  trigger: FlowTrigger;
  started_at: string;
  identity: WireIdentity;
  duration_ms?: number | null;
  cost_usd?: number | null;
  error_class?: string;
}

/** The answer of `flows.runs.list`, newest first. */
export interface FlowRunsListed {
  runs: FlowRunRow[];
  page: number;
  page_size: number;
  page_count: number;
  total_rows: number;
}

/** The answer of `flows.run`. */
export interface FlowStarted {
  run_id: string;
  status: FlowStatus;
  started_at: string;
}

/** How a run of a flow is, or how it ended. */
export type FlowStatus = "cancelled" | "failed" | "running" | "succeeded";

/** Who started a run of a flow. */
export type FlowTrigger = "planner" | "system" | "user";

/** The answer of `flows.list`, by id. */
export interface FlowsListed {
  flows: FlowRow[];
  page: number;
  page_size: number;
  page_count: number;
  total_rows: number;
}

/** The new run; `reused` says that an earlier request with the same key had started it. */
export interface ForkAnswer {
  protocol_version: string;
  task_id: string;
  reused: boolean;
  forked_from: StepOf;
}

/** A new run whose steps before `step` are those of the run `id`. */
export interface ForkRequest {
  identity?: IdentityScope;
  id?: string;
  step?: number;
  goal?: string;
  model?: string;
  instructions?: string;
  agent?: string;
  max_steps?: number;
  live?: boolean;
  idempotency_key?: string;
}

/** The files of a test of a run. */
export interface FreezeAnswer {
  protocol_version: string;
  name: string;
  files: FrozenFile[];
}

/** A file of a frozen run. */
export interface FrozenFile {
  path: string;
  content: string;
}

/** `artifacts.get_ref`; `expiry` is in nanoseconds, 0 or less is 15 minutes. */
export interface GetArtifactRef {
  identity?: IdentityScope;
  scope?: ScopeParts;
  id?: string;
  expiry?: number;
}

/** `memory.get`. */
export interface GetMemory {
  identity?: IdentityScope;
  key?: string;
}

/** The limits of an agent by tier. */
export interface GovernanceBinding {
  ceilings: TierCeiling[];
  rate_limits: TierRate[];
}

/** The answer to `governance.posture`. `tiers` says the same as `identity_tiers`, as a list. */
export interface GovernancePosture {
  protocol_version: string;
  default_tier: string;
  resolved_tier: string;
  identity_tiers: Record<string, IdentityTier>;
  tiers: (Record<string, Json>)[];
}

/** The same counts, and which driver keeps the items of each scope. */
export interface HealthAggregate {
  total: number;
  expiring_in_1h: number;
  identity_rejected_24h: number;
  recovery_dropped_24h: number;
  driver_by_scope: Record<string, string>;
}

/** The answer of `mcp.servers.health`. */
export interface HealthShown {
  protocol_version: string;
  handshake_latency_buckets: LatencyBucket[];
  reconnect_history: Reconnect[];
  transport_error_rate: number;
}

/** A distribution of values. */
export interface Histogram {
  name: string;
  count: number;
  sum: number;
  buckets?: HistogramBucket[];
  labels?: Record<string, string>;
}

/** How many values were at most `upper_bound`. */
export interface HistogramBucket {
  upper_bound: number;
  count: number;
}

/** Whom a request is for. `run` and `scope` are read by controls, the last three by impersonation alone. */
export interface IdentityScope {
  tenant?: string;
  user?: string;
  session?: string;
  run?: string;
  scope?: string;
  actor?: PrincipalParts | null;
  requester?: PrincipalParts | null;
  impersonating?: PrincipalParts | null;
}

/** What the principals of one tier may use. */
export interface IdentityTier {
  budget_ceiling_usd: number;
  max_tokens: number;
  rate_limit: RateLimit;
}

/** A question to a person, and its outcome, which is `pending` until it is answered. */
export interface Intervention {
  type: string;
  reason: string;
  outcome: string;
  occurred_at: string;
}

/** How long a handshake took that began then. */
export interface LatencyBucket {
  start_ms: number;
  latency_ms: number;
}

/** `artifacts.list`; `limit` of 0 or less is 100. */
export interface ListArtifacts {
  identity?: IdentityScope;
  scope?: ScopeParts;
  mime_type?: string[];
  source?: string[];
  size_range?: SizeRange;
  created_range?: CreatedRange;
  tags?: string[];
  limit?: number;
}

/** `flows.runs.list`; `page` 0 is 1, `page_size` 0 is 50. */
export interface ListFlowRuns {
  identity?: IdentityScope;
  flow_id?: string;
  tenants?: string[];
  page?: number;
  page_size?: number;
}

/** `flows.list`; `page` 0 is 1, `page_size` 0 is 50. */
export interface ListFlows {
  identity?: IdentityScope;
  filter?: FlowFilterParts;
  page?: number;
  page_size?: number;
}

/** `memory.list`; `page` 0 is 1, `page_size` 0 is 50. */
export interface ListMemory {
  identity?: IdentityScope;
  filter?: MemoryFilterParts;
  page?: number;
  page_size?: number;
}

/** `pause.list`; `page` 0 is 1, `page_size` 0 is 50. */
export interface ListPauses {
  identity?: IdentityScope;
  filter?: PauseFilterParts;
  page?: number;
  page_size?: number;
}

/** `mcp.servers.list`; its filters stand beside each other. `page_size` of 0 or less is 50. */
export interface ListServers {
  identity?: IdentityScope;
  state?: string[];
  transport?: string[];
  has_oauth?: boolean | null;
  has_recent_error?: boolean | null;
  name_prefix?: string;
  page_token?: string;
  page_size?: number;
}

/** `tools.list`; `page` 0 is 1, `page_size` 0 is 50. */
export interface ListTools {
  identity?: IdentityScope;
  filter?: ToolFilterParts;
  page?: number;
  page_size?: number;
}

/** `flows.metrics`; in milliseconds, 0 is a day and an hour. */
export interface MeasureFlow {
  identity?: IdentityScope;
  flow_id?: string;
  window_ms?: number;
  bucket_ms?: number;
}

/** How many items there are, and what went wrong with the memory of the tenant within a day. */
export interface MemoryAggregates {
  total: number;
  expiring_in_1h: number;
  identity_rejected_24h: number;
  recovery_dropped_24h: number;
}

/** How the sessions of an agent remember. `ttl_seconds` is 0 where memory has no end. */
export interface MemoryBinding {
  strategy_id: string;
  ttl_seconds: number;
  scope: string;
}

/** An item with its value, or with a reference to it where it is large. */
export interface MemoryDetail {
  item: MemoryItem;
  metadata: MemoryMetadata;
  value: string;
  value_artifact: ArtifactReference;
}

/** Which items; each list is any-of, `content_search` a part of the value's JSON. */
export interface MemoryFilterParts {
  tenant_ids?: string[];
  user_ids?: string[];
  session_ids?: string[];
  agent_ids?: string[];
  scopes?: string[];
  drivers?: string[];
  strategies?: string[];
  has_ttl_expiring?: boolean;
  content_search?: string;
}

/** `memory.health`. */
export interface MemoryHealth {
  identity?: IdentityScope;
}

/** The answer of `memory.health`. */
export interface MemoryHealthShown {
  protocol_version: string;
  aggregate: HealthAggregate;
}

/** One item that is remembered; `expires_at` is the zero time where it does not end. */
export interface MemoryItem {
  key: string;
  strategy: string;
  scope: string;
  identity: WireIdentity;
  created_at: string;
  last_updated_at: string;
  expires_at: string;
  size_bytes: number;
  driver: string;
  agent_id: string;
  heavy_content: boolean;
}

/** The answer of `memory.list`, newest first. */
export interface MemoryListed {
  protocol_version: string;
  items: MemoryItem[];
  page: number;
  page_size: number;
  page_count: number;
  total_rows: number;
  aggregates: MemoryAggregates;
}

/** What is known of an item; `ttl` is in nanoseconds, absent where it does not end. */
export interface MemoryMetadata {
  ttl: number;
  strategy_config: Record<string, string>;
  related_event_ids: string[];
}

/** The answer of `memory.get`. */
export interface MemoryShown {
  protocol_version: string;
  detail: MemoryDetail;
}

/** A part of a message: its text, what stands for a text that is too large, or a reference. */
export interface MessagePart {
  type: string;
  text: string;
  cut: CutValue;
  artifact_ref: ReferenceOf;
}

/** A counter or a gauge. */
export interface MetricValue {
  name: string;
  value: number;
  labels?: Record<string, string>;
}

/** The answer to `metrics.snapshot`. `snapshot_at` is in unix milliseconds. */
export interface MetricsSnapshot {
  counters: MetricValue[];
  histograms: Histogram[];
  gauges: MetricValue[];
  snapshot_at: number;
}

/** What a model answered. */
export interface ModelAnswer {
  content: string;
  reasoning: string;
  tool_calls: CallOfModel[];
  finish_reason: string;
}

/** The answer to `llm.posture`. */
export interface ModelPosture {
  protocol_version: string;
  provider: string;
  model: string;
  region: string;
  mock_mode: boolean;
}

/** The limits of one node. */
export interface NodePolicy {
  max_retries?: number;
  timeout_ms?: number;
}

/** How one node of a run is. */
export interface NodeState {
  node_id: string;
  status: string;
  duration_ms?: number | null;
  retries?: number;
  error_class?: string;
}

/** What a node of a flow is; one that calls a function is a tool. */
export type NodeType = "artifact_emitter" | "pause_point" | "subflow" | "tool";

/** The answer of `tools.revoke_oauth`. */
export interface OAuthRevoked {
  id: string;
  revoked_count: number;
}

/** What to set for the next run of a session; a blank `session_id` is the caller's own, unset fields change nothing. `reasoning_effort` is low, medium or high, `temperature` from 0 to 2, `top_p` from 0 to 1, `max_tokens` above 0. */
export interface OverrideParts {
  session_id?: string;
  reasoning_effort?: string;
  temperature?: number | null;
  top_p?: number | null;
  max_tokens?: number | null;
  system_prompt_override?: string;
}

/** The answer of `runs.set_overrides`: when they were recorded. */
export interface OverridesSet {
  protocol_version: string;
  applied_at: string;
}

/** A reference to an artifact, with its owner. */
export interface OwnedReference {
  id: string;
  size_bytes: number;
  scope: WireScope;
  mime_type?: string;
  filename?: string;
  sha256?: string;
  namespace?: string;
}

/** The session of a task. */
export interface ParentSession {
  session_id: string;
  agent_name: string;
  status: string;
  started_at: string;
  latest_event_at: string;
}

/** The task that started another. */
export interface ParentTask {
  task_id: string;
  kind: string;
  status: string;
}

/** Which pauses; without `status` the open ones. `since` and `until` bound when they were opened, both included. */
export interface PauseFilterParts {
  status?: string[];
  tenant_ids?: string[];
  user_ids?: string[];
  session_ids?: string[];
  run_ids?: string[];
  reasons?: string[];
  since?: string | null;
  until?: string | null;
}

/** One pause. The keys from `deadline` on are additions, each absent where it has no value. `default` is what the deadline does; `approvers` are those who may answer: `user:` and an id, or `scope:` and a scope of a token. `decision` and `by` are those of a resumed one. `step`, from 1, and `call_id` name the call that waits, as events do; `masked` says that its arguments show a secret as a mask. */
export interface PauseSnapshot {
  token: string;
  reason: string;
  state: string;
  identity: WireIdentity;
  paused_at: string;
  resumed_at: string;
  payload?: Record<string, Json> | null;
  payload_ref?: ArtifactReference | null;
  deadline?: string | null;
  default?: string;
  approvers?: string[];
  agent_name?: string;
  decision?: string;
  by?: WireIdentity | null;
  step?: number;
  call_id?: string;
  masked?: boolean;
}

/** The answer of `pause.list`, newest first; `truncated` says that no resumed pause is kept any more. */
export interface PausesListed {
  snapshots: PauseSnapshot[];
  page: number;
  page_size: number;
  page_count: number;
  total_rows: number;
  truncated?: boolean;
}

/** Who may start an agent. */
export interface Permissions {
  model: string;
  description: string;
  allowed_principals?: string[];
}

/** Where a task that goes on stands. */
export interface PlannerSnapshot {
  checkpoint_id: string;
  summary: string;
}

/** The answer of `mcp.servers.policy`. */
export interface PolicyShown {
  protocol_version: string;
  tool_policy: ToolPolicyView;
}

/** A principal as a request names one; a blank part is not said. */
export interface PrincipalParts {
  tenant?: string;
  user?: string;
  session?: string;
}

/** The answer of `mcp.servers.probe`. */
export interface Probed {
  protocol_version: string;
  ok: boolean;
  latency_ms: number;
  error: string;
}

/** An argument of a prompt. */
export interface PromptArgument {
  name: string;
  required: boolean;
  description: string;
}

/** A message of a prompt. */
export interface PromptMessage {
  role: string;
  name: string;
  tool_call_id: string;
  parts: MessagePart[];
  tool_calls: CallOfModel[];
  tokens: number;
}

/** A tool that a model is offered. */
export interface PromptTool {
  name: string;
  description: string;
  schema: Json;
}

/** A prompt that a server offers. */
export interface PromptView {
  name: string;
  arguments: PromptArgument[];
  description: string;
}

/** The answer of `mcp.servers.prompts`. */
export interface PromptsListed {
  protocol_version: string;
  prompts: PromptView[];
}

/** `artifacts.put`; `data` is the content in standard base64. */
export interface PutArtifact {
  identity?: IdentityScope;
  scope?: ScopeParts;
  bytes?: string;
  opts?: PutOptions;
}

/** What is known of an upload beside its content. */
export interface PutOptions {
  mime_type?: string;
  filename?: string;
  namespace?: string;
  source?: string;
  tags?: string[];
}

/** A bucket of requests: what it holds, and what flows back in each interval. */
export interface RateLimit {
  capacity: number;
  refill_tokens: number;
  refill_interval_ms: number;
}

/** A connection that was made again. */
export interface Reconnect {
  occurred_at: string;
  reason?: string;
}

/** A stored artifact that holds the whole of a value. */
export interface ReferenceOf {
  id: string;
  mime: string;
  size: number;
}

/** How a replay came out; `is_whole` says that the record goes to the run's end. */
export interface ReplayAnswer {
  protocol_version: string;
  id: string;
  is_same: boolean;
  is_whole: boolean;
  steps: number;
  model_calls: number;
  difference: DifferenceRow;
}

/** A request; every family accepts `identity`. */
export interface Request {
  identity?: IdentityScope;
}

/** A resource that a server offers. */
export interface ResourceView {
  uri: string;
  mime_type?: string;
  size_bytes?: number;
  name?: string;
  title?: string;
}

/** The answer of `mcp.servers.resources`. */
export interface ResourcesListed {
  protocol_version: string;
  resources: ResourceView[];
}

/** A new token of the same principal and scopes. The old one stays valid until it expires. */
export interface RotateTokenAnswer {
  new_token: string;
  expires_at: string;
}

/** `flows.run`. */
export interface RunFlow {
  identity?: IdentityScope;
  flow_id?: string;
  inputs?: Record<string, Json>;
}

/** A run as a whole. `active_ms` is how long it did not wait. */
export interface RunHeader {
  id: string;
  identity: WireIdentity;
  goal: string;
  agent_name: string;
  model: string;
  status: string;
  condition: string;
  error_class: string;
  started_at: string;
  ended_at: string;
  active_ms: number;
  rehearsal: boolean;
  forked_from: StepOf;
  parent: StepOf;
  limits: RunLimits;
  totals: RunTotals;
}

/** What a run may take; absent where nothing is set. */
export interface RunLimits {
  steps: number;
  calls: number;
  tokens: number;
  usd: number;
  seconds: number;
}

/** What a run has taken. */
export interface RunTotals {
  steps: number;
  tool_calls: number;
  model_calls: number;
  prompt_tokens: number;
  completion_tokens: number;
  reasoning_tokens: number;
  cached_tokens: number;
  usd: number;
}

/** The answer to `runtime.counters`. `snapshot_at` is in unix milliseconds. */
export interface RuntimeCounters {
  events_per_second: number;
  tasks_running: number;
  background_jobs_active: number;
  mcp_connections_healthy: number;
  sessions_active: number;
  snapshot_at: number;
}

/** The answer to `runtime.drivers`. */
export interface RuntimeDrivers {
  subsystems: SubsystemDriver[];
}

/** The answer to `runtime.health`. */
export interface RuntimeHealth {
  subsystems: SubsystemHealth[];
}

/** The answer to `runtime.info`. */
export interface RuntimeInfo {
  protocol_version: string;
  instance_id: string;
  display_name: string;
  build_version: string;
  build_commit: string;
  build_date: string;
  build_go_version: string;
  capabilities: string[];
  uptime_seconds: number;
}

/** What the planner decided; `decision` is its kind, "" where it failed or was cut short. */
export interface Said {
  decision: string;
  value: Json;
  reasoning: string;
  preamble: string;
}

/** What the planner asked its model. */
export interface Saw {
  asks: AskRow[];
}

/** Whose artifacts a request is about; a blank part is not said. */
export interface ScopeParts {
  tenant?: string;
  user?: string;
  session?: string;
  task?: string;
}

/** Whose things are looked for, and of which time; what is empty narrows nothing. */
export interface SearchFilter {
  tenant_ids?: string[];
  user_ids?: string[];
  session_ids?: string[];
  since?: string | null;
  until?: string | null;
}

/** The answer of every method of the family. */
export interface SearchPage {
  protocol_version: string;
  rows: SearchRow[];
  page: number;
  page_size: number;
  page_count: number;
  total_count: number;
  has_more: boolean;
}

/** The request of every method of the family. */
export interface SearchRequest {
  identity?: IdentityScope;
  query?: string;
  indexes?: string[];
  filter?: SearchFilter;
  facets?: Facet[];
  page?: number;
  page_size?: number;
}

/** One thing that was found; artifacts have no time. */
export interface SearchRow {
  index: string;
  id: string;
  tenant_id: string;
  user_id: string;
  session_id: string;
  run_id?: string;
  occurred_at: string;
  preview?: string;
  ref?: ArtifactReference | null;
  facets?: Record<string, string>;
}

/** The answer of `mcp.servers.get`. */
export interface ServerDescribed {
  protocol_version: string;
  server: ServerView;
  display_modes_advertised: string[];
  content_shapes: string[];
  tool_policy: ToolPolicyView;
  bindings_summary: BindingCount[];
}

/** A request about one server. */
export interface ServerNamed {
  identity?: IdentityScope;
  name?: string;
}

/** How the connection to an MCP server is. */
export type ServerState = "auth_pending" | "error" | "offline" | "online" | "reconnecting";

/** One server, as lists show it. */
export interface ServerView {
  name: string;
  transport: string;
  url_or_command: string;
  state: ServerState;
  last_discovery_at: string;
  tool_count: number;
  resource_count: number;
  prompt_count: number;
  recent_latency_ms: number;
  error_rate_per_min: number;
  oauth_binding_count: number;
  raw_html_trusted: boolean;
}

/** The answer of `mcp.servers.list`, by name; `next_page_token` is the last name where there are more. */
export interface ServersListed {
  protocol_version: string;
  servers: ServerView[];
  total: number;
  next_page_token: string;
}

/** A file of a session. */
export interface SessionArtifact {
  filename: string;
  mime: string;
  size_bytes: number;
  created_at: string;
}

/** The answer to `sessions.inspect`. */
export interface SessionDetail {
  row: SessionRow;
  recent_interventions: Intervention[];
  recent_artifacts: SessionArtifact[];
}

/** Which sessions to list; what is empty narrows nothing. */
export interface SessionFilter {
  statuses?: string[];
  agent_ids?: string[];
  user_ids?: string[];
  tenant_ids?: string[];
  started_window?: StartedWindow;
  has_intervention?: boolean | null;
  has_failed_task?: boolean | null;
  cost_above_cents?: number | null;
  query?: string;
}

/** The request of `sessions.inspect`. */
export interface SessionInspectRequest {
  identity?: IdentityScope;
  session_id?: string;
}

/** The request of `sessions.list`. */
export interface SessionListRequest {
  identity?: IdentityScope;
  filter?: SessionFilter;
  sort?: string;
  cursor?: string;
  limit?: number;
}

/** The answer to `sessions.list`; `truncated` says that there is a next page. */
export interface SessionPage {
  rows: SessionRow[];
  next_cursor: string;
  truncated: boolean;
}

/** A session as lists show it; `duration` is in nanoseconds. */
export interface SessionRow {
  session_id: string;
  status: string;
  agent_id: string;
  agent_name: string;
  user_id: string;
  tenant_id: string;
  started_at: string;
  last_activity_at: string;
  duration: number;
  tasks_count: number;
  events_count: number;
  total_cost_cents: number;
  total_tokens: number;
  has_pending_intervention: boolean;
  has_failed_task: boolean;
  identity: WireIdentity;
}

/** `tools.set_approval_policy`; `policy` is auto, gated or denied. */
export interface SetApprovalPolicy {
  identity?: IdentityScope;
  id?: string;
  policy?: string;
}

/** `runs.set_overrides`; a blank set is legal, and takes back what was set before. */
export interface SetOverrides {
  identity?: IdentityScope;
  overrides?: OverrideParts;
}

/** `mcp.servers.set_raw_html_trust`. */
export interface SetTrust {
  identity?: IdentityScope;
  name?: string;
  trusted?: boolean;
}

/** The answer of `mcp.servers.refresh_binding`. */
export interface SignInBegun {
  protocol_version: string;
  authorize_url: string;
  state: string;
}

/** How many results were larger than the bucket before and at most this large, in bytes. */
export interface SizeBucket {
  max_bytes: number;
  count: number;
}

/** Bounds of a size in bytes, both included. */
export interface SizeRange {
  min_bytes?: number | null;
  max_bytes?: number | null;
}

/** A skill of an agent. */
export interface SkillBinding {
  skill_id: string;
  name: string;
  generated: boolean;
}

/** What a run may take at most, all runs that it starts included; `usd` are US dollars. What the operator set for the agent stays, where that is less. */
export interface StartLimits {
  steps?: number | null;
  calls?: number | null;
  tokens?: number | null;
  usd?: number | null;
  seconds?: number | null;
}

/** Start a run of `agent`, a name or an id, empty for the first one; `query` may be empty. The keys from `limits` on are additions: `tags` are names and values by which the run is found, `messages` what was said before it. */
export interface StartRequest {
  identity?: IdentityScope;
  query?: string;
  description?: string;
  priority?: number;
  idempotency_key?: string;
  input_artifact_ids?: string[];
  agent?: string;
  limits?: StartLimits;
  tags?: Record<string, string>;
  messages?: EarlierMessage[];
}

/** The run's id, which is also that of its task. `reused`: an earlier request with the key had started it. */
export interface Started {
  protocol_version: string;
  task_id: string;
  reused: boolean;
}

/** When sessions were opened, both ends included. */
export interface StartedWindow {
  from?: string | null;
  to?: string | null;
}

/** How many tasks the session has, whatever the filter says. */
export interface StatusStrip {
  pending: number;
  running: number;
  completed: number;
  paused: number;
  failed: number;
}

/** One step: what the planner saw, what it said, and what that brought. */
export interface StepAnswer {
  protocol_version: string;
  step: StepRow;
  saw: Saw;
  said: Said;
  observation: Json;
}

/** What the calls of a model in one step used; steps are counted from 0. */
export interface StepCost {
  step_index: number;
  tokens: number;
  usd: number;
}

/** A step of another run. */
export interface StepOf {
  id: string;
  step: number;
}

/** Which step of a run; `full` gives prompts whole, not as what is new in them. */
export interface StepRequest {
  identity?: IdentityScope;
  id?: string;
  step?: number;
  full?: boolean;
}

/** One step; `decision` is absent while the planner decides. */
export interface StepRow {
  step: number;
  status: string;
  decision: string;
  preview: string;
  started_at: string;
  decided_at: string;
  ended_at: string;
  latency_ms: number;
  tokens: Tokens;
  usd: number;
  error: ErrorOf;
  calls: CallRow[];
  children: ChildRow[];
  waits: WaitRow[];
}

/** A page of the steps of a run; `more` says that others follow. */
export interface StepsAnswer {
  protocol_version: string;
  run: RunHeader;
  steps: StepRow[];
  controls: ControlRow[];
  more: boolean;
}

/** Which steps of a run: those after `after`, at most `limit` (0 is 200, the most is 1,000). */
export interface StepsRequest {
  identity?: IdentityScope;
  id?: string;
  after?: number;
  limit?: number;
}

/** By which driver one part is kept. */
export interface SubsystemDriver {
  subsystem: string;
  driver: string;
  mode?: string;
}

/** How one part stands: `ready`, `degraded` or `unavailable`. */
export interface SubsystemHealth {
  subsystem: string;
  status: string;
  detail?: string;
}

/** What a task used, without those that it started. */
export interface TaskCost {
  total_tokens: number;
  prompt_tokens: number;
  output_tokens: number;
  usd: number;
  per_step: StepCost[];
}

/** How many tasks pass the filter, by status. */
export interface TaskCounts {
  pending: number;
  running: number;
  paused: number;
  failed: number;
  complete: number;
  cancelled: number;
}

/** Where the next page begins; `{}` is the beginning in a request, and the end in an answer. */
export interface TaskCursor {
  next_page_token?: string;
}

/** The answer to `tasks.get`. `result_inline` is the JSON text of the result. */
export interface TaskDetail {
  task: TaskRow;
  parent_session: ParentSession;
  parent_task?: ParentTask | null;
  cost: TaskCost;
  planner_snapshot?: PlannerSnapshot | null;
  result_ref?: ArtifactReference | null;
  result_inline?: string;
  trajectory?: Trajectory | null;
}

/** Which tasks to list; what is empty narrows nothing, but for `identities`: without one, those of the session. `tags`, an addition, are names and values that a task has all of. */
export interface TaskFilter {
  statuses?: string[];
  kinds?: string[];
  parent_task_id?: string;
  identities?: IdentityScope[];
  since?: string | null;
  until?: string | null;
  error_classes?: string[];
  latency_above_ms?: number;
  search?: string;
  group_id?: string;
  has_pending_approval?: boolean | null;
  tags?: Record<string, string>;
}

/** The request of `tasks.get`. */
export interface TaskGetRequest {
  identity?: IdentityScope;
  id?: string;
}

/** The request of `tasks.list`. */
export interface TaskListRequest {
  identity?: IdentityScope;
  filter?: TaskFilter;
  page_size?: number;
  cursor?: TaskCursor;
  include_status_counter_strip?: boolean;
}

/** The answer to `tasks.list`. */
export interface TaskPage {
  rows: TaskRow[];
  cursor: TaskCursor;
  aggregates: TaskCounts;
  status_counter_strip?: StatusStrip | null;
}

/** A task as lists show it. `condition` says why a task is not where its status says: `interrupted`, `blocked`. */
export interface TaskRow {
  id: string;
  kind: string;
  status: string;
  priority: number;
  identity: WireIdentity;
  parent_session_id: string;
  parent_task_id?: string;
  description: string;
  query: string;
  started_at: string;
  updated_at: string;
  duration_ms: number;
  error_class?: string;
  tool_count: number;
  background_acknowledged: boolean;
  group_id?: string;
  tags?: string[];
  last_activity_at: string;
  is_background: boolean;
  has_pending_approval: boolean;
  condition?: string;
  agent_name: string;
  cost_usd: number;
}

/** What a tier may spend, and has spent. */
export interface TierCeiling {
  tier: string;
  limit_usd: number;
  spend_usd: number;
}

/** How often a tier may ask. */
export interface TierRate {
  tier: string;
  requests_per_minute: number;
  max_tokens: number;
}

/** Tokens by kind. */
export interface Tokens {
  prompt: number;
  completion: number;
  reasoning: number;
  cached: number;
}

/** How many tools a filter finds, and of them: those that were used, that are gated, that wait for a sign-in. */
export interface ToolAggregates {
  total: number;
  active: number;
  pending_approval: number;
  awaiting_oauth: number;
}

/** A tool of an agent, and whether its user is signed in for it. */
export interface ToolBinding {
  tool_id: string;
  tool_name: string;
  transport: string;
  auth_status: string;
  binding_scope?: string;
}

/** The answer of `tools.content_stats`. */
export interface ToolContent {
  id: string;
  histogram: SizeBucket[];
  heavy_threshold_bytes: number;
  heavy_count: number;
  negotiated_display: Record<string, string>;
}

/** The answer of `tools.describe`. Schemas are JSON as text, "" for none; `timeout_ms` 0 sets no deadline. `unavailable_reason` says of a tool that no run is offered why it is not. */
export interface ToolDescribed {
  tool: ToolRow;
  side_effect: string;
  args_schema: string;
  out_schema: string;
  examples: string[];
  auth_scopes: string[];
  oauth_binding_scope: string;
  retry_attempts: number;
  timeout_ms: number;
  loading_mode: string;
  display_modes: Record<string, string>;
  unavailable_reason: string;
}

/** Which tools; each list is any-of, `search` a part of name or version. */
export interface ToolFilterParts {
  scopes?: string[];
  transports?: string[];
  oauth_statuses?: string[];
  approval_policies?: string[];
  reliability_tiers?: string[];
  search?: string;
}

/** The answer of `tools.metrics`; rates are from 0 to 1, the counts are those of the window. */
export interface ToolMeasured {
  id: string;
  window: string;
  error_rate_1h: number;
  error_rate_24h: number;
  error_rate_7d: number;
  invocations: number;
  failures: number;
  status: string;
}

/** `tools.metrics`; `window` is 1h, 24h or 7d, blank is 1h. */
export interface ToolMetrics {
  identity?: IdentityScope;
  id?: string;
  window?: string;
}

/** A request about one tool; its id is its name. */
export interface ToolNamed {
  identity?: IdentityScope;
  id?: string;
}

/** The limits of the calls to a server. */
export interface ToolPolicyView {
  timeout_ms: number;
  max_retries: number;
  concurrency_cap: number;
}

/** One tool. `last_used_at` is when the caller, or anybody whose rows the caller may see, called it last. */
export interface ToolRow {
  id: string;
  name: string;
  version: string;
  description: string;
  scope: string;
  transport: string;
  oauth_status: string;
  approval_policy: string;
  reliability_tier: string;
  owner: string;
  last_used_at: string;
}

/** The answer of `tools.list`, by name. */
export interface ToolsListed {
  tools: ToolRow[];
  page: number;
  page_size: number;
  page_count: number;
  total_rows: number;
  aggregates: ToolAggregates;
}

/** A channel of an engine's graph, and how full it is. */
export interface TopologyEdge {
  from: string;
  to: string;
  queue_depth: number;
  queue_capacity: number;
}

/** A node of an engine's graph; `kind` is `inlet`, `node` or `outlet`. */
export interface TopologyNode {
  name: string;
  kind: string;
}

/** The answer to `topology.snapshot`. */
export interface TopologySnapshot {
  engine_id: string;
  occurred_at: string;
  nodes: TopologyNode[];
  edges: TopologyEdge[];
}

/** The steps of a task that have a reasoning. */
export interface Trajectory {
  steps: TrajectoryStep[];
}

/** The reasoning of one step; steps are counted from 0. */
export interface TrajectoryStep {
  index: number;
  reasoning_trace: string;
}

/** The answer of `mcp.servers.set_raw_html_trust`. */
export interface TrustSet {
  protocol_version: string;
  name: string;
  trusted: boolean;
}

/** What a step waited or waits for: a reason of pauses, or `child`, `timer`, `worker`. */
export interface WaitRow {
  reason: string;
  token: string;
  call_id: string;
  opened_at: string;
  settled_at: string;
  decision: string;
  by: WireIdentity;
  deadline: string;
  default: string;
}

/** Whose something is, in an answer; `run` is absent where none is meant. */
export interface WireIdentity {
  tenant: string;
  user: string;
  session: string;
  run?: string;
}

/** The owner of an artifact; `task` is absent where it belongs to the session as a whole. */
export interface WireScope {
  tenant: string;
  user: string;
  session: string;
  task?: string;
}

/** The request of what is asked about one agent. */
export interface harborage_protocol_wire_agents_AgentRequest {
  identity?: IdentityScope;
  id?: string;
}

/** A run that is to be replayed or frozen, by another agent than its own where one is named. */
export interface harborage_protocol_wire_runs_AgentRequest {
  identity?: IdentityScope;
  id?: string;
  agent?: string;
}

/** The model sent a field that actions do not have; it was ignored. */
export interface ActionExtraFieldDroppedPayload {
  Identity: Quadruple;
  Field: string;
  OccurredAt: string;
}

/** `audit.admin_scope_used` of a sessions query by an admin, and of a token rotation. */
export interface AdminActionPayload {
  Actor: Triple;
  Method: string;
}

/** `audit.admin_scope_used` of a task list across tenants. */
export interface AdminTasksListedPayload {
  Actor: Triple;
  Method: string;
  TenantCount: number;
}

/** `audit.admin_scope_used` of an admin's action on one tool. */
export interface AdminToolActionPayload {
  Actor: Triple;
  Method: string;
  ToolID: string;
}

/** A fleet control: pause, drain, restart or force_stop. `reason` is redacted, `issued_at` in unix nanoseconds. */
export interface AgentCommandPayload {
  AgentID: string;
  Command: string;
  Reason: string;
  IssuedAt: number;
}

/** An agent was removed. `deregistered_at` is in unix nanoseconds. */
export interface AgentDeregisteredPayload {
  AgentID: string;
  RegistrationKey: string;
  DeregisteredAt: number;
}

/** An agent reported its health. `reported_at` is in unix nanoseconds. */
export interface AgentHealthPayload {
  AgentID: string;
  Health: string;
  ReportedAt: number;
}

/** An agent registered under a new key. `registered_at` is in unix nanoseconds. */
export interface AgentRegisteredPayload {
  AgentID: string;
  RegistrationKey: string;
  Incarnation: number;
  VersionHash: string;
  Hosting: string;
  RegisteredAt: number;
}

/** A known agent registered again. `restarted_at` is in unix nanoseconds. */
export interface AgentRestartedPayload {
  AgentID: string;
  RegistrationKey: string;
  Incarnation: number;
  VersionHash: string;
  VersionHashChanged: boolean;
  RestartedAt: number;
}

/** An upload is stored. The one payload whose wire keys are in snake case. */
export interface ArtifactsUploadedPayload {
  artifact_id: string;
  size_bytes: number;
  mime_type?: string;
  source?: string;
  namespace?: string;
}

/** An admin read across sessions: the filter and, if it is known, the admin's identity. `subscriber_id` is 0 for a replay and for reads that are not subscriptions. */
export interface AuditAdminScopeUsedPayload {
  Tenant: string;
  User: string;
  Session: string;
  SubscriberID: number;
  Types?: string[];
  Actor?: Quadruple | null;
}

/** An event could not be redacted and was therefore not published; its payload is not quoted. */
export interface AuditRedactionFailedPayload {
  OriginalType: string;
  Reason: string;
}

/** A token was refused at the edge; every value comes from the redacted view of it. */
export interface AuthRejectedPayload {
  Reason: string;
  KID: string;
  Issuer: string;
  Subject: string;
}

/** A subscriber was too slow and lost `dropped_count` events between the two sequence numbers (inclusive). If none of them had a number, `to_seq` is the last sequence that the subscriber got, and `from_seq` one more. For events that the bus dropped before the subscriber came, `subscriber_id` is 0 and `dropped_count` an upper bound. */
export interface BusDroppedPayload {
  FromSeq: number;
  ToSeq: number;
  DroppedCount: number;
  SubscriberID: number;
}

/** One message between agents. Consumers de-duplicate on (task, edge, event). */
export interface BusEnvelope {
  Edge: string;
  Source: string;
  Target: string;
  Identity: Quadruple;
  TaskID: string;
  EventID: string;
  Payload: Json;
  Headers: Record<string, string>;
  Meta: Record<string, Json>;
  Timestamp: string | null;
}

/** A subscription was closed because its events stayed unread for too long. */
export interface BusSubscriptionIdleClosedPayload {
  SubscriberID: number;
  IdleSeconds: number;
}

/** A control was received or applied; `err` is a classified code, never the caller's words. `step` is the one before which it was applied, from 1. */
export interface ControlLifecyclePayload {
  Type: string;
  Outcome: string;
  Err: string;
  By: Triple;
  EventID: string;
  Step: number;
}

/** An inbox refused a control; what the caller sent is not quoted. */
export interface ControlRejectedPayload {
  Type: string;
  Reason: string;
  CallerScope: string;
  By: Triple;
  EventID: string;
}

/** The planner decided at `step`, from 1. `tool` is set for a `CallTool` alone; `reasoning_chars` counts code points. */
export interface DecisionPayload {
  Identity: Quadruple;
  DecisionKind: string;
  Tool: string;
  ReasoningChars: number;
  ReasoningTrace: string;
  OccurredAt: string;
  Step: number;
}

/** A draft workspace was made from a template. */
export interface DevDraftCreatedPayload {
  DraftID: string;
  Template: string;
  FileCount: number;
}

/** A draft was deleted. */
export interface DevDraftDiscardedPayload {
  DraftID: string;
}

/** A draft was checked. */
export interface DevDraftPreviewedPayload {
  DraftID: string;
  OK: boolean;
}

/** A draft was written to a folder. */
export interface DevDraftSavedPayload {
  DraftID: string;
  OutputDir: string;
  FileCount: number;
}

/** A file of a draft changed; `size` in bytes. */
export interface DevDraftUpdatedPayload {
  DraftID: string;
  Path: string;
  Size: number;
}

/** The developer server is up again, or could not be brought up. */
export interface DevHotReloadCompletedPayload {
  Path: string;
  Op: string;
  Policy: string;
  DurationMS: number;
  Success: boolean;
  ErrorMessage: string;
}

/** A watched file changed; `policy` says what happens to runs: drain or cancel. */
export interface DevHotReloadTriggeredPayload {
  Path: string;
  Op: string;
  Policy: string;
}

/** A message went over the message bus. */
export interface DistributedBusEnvelopePayload {
  Envelope: BusEnvelope;
}

/** A flow ran out of deadline or hop_budget. */
export interface FlowBudgetExceededPayload {
  FlowName: string;
  Axis: string;
}

/** A caller read flows. */
export interface FlowsPageViewedPayload {
  Method: string;
  FlowID: string;
  AdminScoped: boolean;
}

/** A flow run was accepted. */
export interface FlowsRunInvokedPayload {
  FlowID: string;
  RunID: string;
}

/** A call was refused: the tier's cost ceiling is reached. */
export interface GovernanceBudgetExceededPayload {
  Identity: Quadruple;
  Tier: string;
  Model: string;
  TotalCost: number;
  Ceiling: number;
  Currency: string;
  OccurredAt: string;
}

/** A call was refused: it asked for more output than its tier allows. */
export interface GovernanceMaxtokensExceededPayload {
  Identity: Quadruple;
  Tier: string;
  Model: string;
  Requested: number;
  Cap: number;
  OccurredAt: string;
}

/** An admin read another tenant's limits. */
export interface GovernancePostureReadAdminPayload {
  Actor: Quadruple;
  RequestedTenant: string;
  OccurredAt: string;
}

/** A call was refused: its token bucket is too empty. `refill_every` is in nanoseconds. */
export interface GovernanceRateLimitedPayload {
  Identity: Quadruple;
  Tier: string;
  Model: string;
  Requested: number;
  Available: number;
  Capacity: number;
  RefillTokens: number;
  RefillEvery: number;
  OccurredAt: string;
}

/** `audit.admin_scope_used` of an admin who acts as another principal. */
export interface ImpersonationPayload {
  Actor: Principal;
  Requester: Principal;
  Impersonating: Principal;
  Method: string;
  Reason: string;
}

/** One streamed piece of an answer; `kind` is content or reasoning. */
export interface LLMCompletionChunkPayload {
  Identity: Quadruple;
  TaskID: string;
  RunID: string;
  Delta: string;
  Done: boolean;
  Kind: string;
  OccurredAt: string;
}

/** Raw content too big for a prompt reached the model's edge, at `leak_site`; the call failed. */
export interface LLMContextLeakPayload {
  Identity: Quadruple;
  Model: string;
  LeakSite: string;
  SizeBytes: number;
  Threshold: number;
  OccurredAt: string;
}

/** The prompt does not fit the model's window; the call failed. */
export interface LLMContextWindowExceededPayload {
  Identity: Quadruple;
  Model: string;
  EstimatedTokens: number;
  ContextWindowTokens: number;
  ContextWindowReserve: number;
  OccurredAt: string;
}

/** What one call cost, in `currency`. */
export interface LLMCost {
  InputTokensCost: number;
  OutputTokensCost: number;
  ReasoningTokensCost: number;
  TotalCost: number;
  Currency: string;
}

/** A provider answered; recorded even when the call was free. `step` is the run's, from 1. */
export interface LLMCostRecordedPayload {
  Identity: Quadruple;
  Model: string;
  Cost: LLMCost;
  Usage: LLMUsage;
  ContextWindowTokens: number;
  OccurredAt: string;
  Step: number;
}

/** An inline image was moved to the artifact store. */
export interface LLMImageMaterializedPayload {
  Identity: Quadruple;
  Model: string;
  ArtifactRef: string;
  MIME: string;
  SizeBytes: number;
  OccurredAt: string;
}

/** A structured-output mode was given up for a weaker one. */
export interface LLMModeDowngradedPayload {
  Identity: Quadruple;
  Model: string;
  FromMode: string;
  ToMode: string;
  From: string;
  To: string;
  Reason: string;
  OccurredAt: string;
}

/** An admin read another tenant's model settings. */
export interface LLMPostureReadAdminPayload {
  Actor: Quadruple;
  RequestedTenant: string;
}

/** A validator refused an answer, and the model was asked again. */
export interface LLMRetryWithFeedbackPayload {
  Identity: Quadruple;
  Model: string;
  Attempt: number;
  MaxRetries: number;
  Reason: string;
  OccurredAt: string;
}

/** What one call used. */
export interface LLMUsage {
  PromptTokens: number;
  CompletionTokens: number;
  ReasoningTokens: number;
  TotalTokens: number;
  LatencyMS: number;
  ProviderExtras: Record<string, Json> | null;
}

/** An operator decided whether a server's raw HTML is trusted. */
export interface MCPRawHtmlTrustToggledPayload {
  Actor: Quadruple;
  ServerName: string;
  Trusted: boolean;
  OccurredAt: string;
}

/** An MCP server reported that a resource changed. */
export interface MCPResourceUpdatedPayload {
  Identity: Quadruple;
  Source: string;
  URI: string;
  OccurredAt: string;
}

/** The planner's own step cap fired. */
export interface MaxStepsExceededPayload {
  Identity: Quadruple;
  MaxSteps: number;
  StepsObserved: number;
  LastTool: string;
  OccurredAt: string;
}

/** The rolling summary became healthy, retry, degraded or recovering. */
export interface MemoryHealthChangedPayload {
  PriorHealth: string;
  NewHealth: string;
  Reason: string;
}

/** Memory was asked for without a complete identity; the envelope says `<missing>` for each empty part. */
export interface MemoryIdentityRejectedPayload {
  Operation: string;
  Reason: string;
}

/** A turn fell out of the backlog that waits for the summariser to come back. */
export interface MemoryRecoveryDroppedPayload {
  Reason: string;
}

/** An event without a complete identity triggered a notification, which therefore has no recipient. */
export interface NotificationIdentityRejectedPayload {
  Reason: string;
  OriginEventType: string;
  Operation: string;
}

/** A notification for a person, made from the event that it names. */
export interface NotificationPayload {
  class: string;
  severity: string;
  summary: string;
  deeplink: string;
  origineventtype: string;
  origineventsequence: number;
}

/** A pause's payload was too heavy for a list and went to the artifact store. */
export interface PausePayloadArtifactRoutedPayload {
  Token: string;
  ArtifactID: string;
  PayloadBytes: number;
  ThresholdBytes: number;
}

/** A run waits for an answer to a pause. `deadline` resolves it with `default`; `approvers` may answer it, such as `user:ada`. `step` and `call_id` are those of the call that waits. */
export interface PauseRequestedPayload {
  Token: string;
  Reason: string;
  Step: number;
  CallID: string;
  Deadline: string;
  Default: string;
  Approvers: string[];
}

/** A pause was decided: approve, reject, resume or timeout. */
export interface PauseResumedPayload {
  Token: string;
  Reason: string;
  Decision: string;
  By: Triple;
  EventID: string;
}

/** The planner failed at a step. `error_message` is at most 256 characters. */
export interface PlannerErrorPayload {
  Identity: Quadruple;
  ErrorCode: string;
  ErrorMessage: string;
  Step: number;
  OccurredAt: string;
}

/** The planner ended the run, for this reason. */
export interface PlannerFinishPayload {
  Identity: Quadruple;
  Reason: string;
  OccurredAt: string;
}

/** An identity in the short spelling of impersonation audits: Tenant, User, Session. */
export interface Principal {
  Tenant: string;
  User: string;
  Session: string;
}

/** An identity and the run it acts in; `run_id` may be empty where no run is known. */
export interface Quadruple {
  TenantID: string;
  UserID: string;
  SessionID: string;
  RunID: string;
}

/** The repair loop gave up. Each of `reasons` is at most 256 characters. */
export interface RepairExhaustedPayload {
  Identity: Quadruple;
  Attempts: number;
  ConsecutiveArgFailures: number;
  Reasons: string[];
  OccurredAt: string;
}

/** A guidance block went into the prompt: `tier` of `counter`, which had reached `count`. */
export interface RepairGuidanceInjectedPayload {
  Identity: Quadruple;
  Tier: string;
  Counter: string;
  Count: number;
  OccurredAt: string;
}

/** A caller overrode settings for the next message; their names, not their values. */
export interface RunsOverridesSetPayload {
  Actor: Quadruple;
  SessionID: string;
  SetReasoningEffort: boolean;
  SetTemperature: boolean;
  SetTopP: boolean;
  SetMaxTokens: boolean;
  SetSystemPrompt: boolean;
}

/** An error that was logged while an identity was in context. */
export interface RuntimeErrorPayload {
  message: string;
  fields: Record<string, Json>;
}

/** An engine cancelled a run. `cancelled_at` is in unix nanoseconds. */
export interface RuntimeRunCancelledPayload {
  RunID: string;
  CancelledAt: number;
  DroppedEnvelopeCount: number;
}

/** A problem that a person should know of; the run goes on. */
export interface RuntimeWarningPayload {
  message: string;
  fields: Record<string, Json>;
}

/** A session was closed. */
export interface SessionClosedPayload {
  SessionID: string;
  ClosedAt: number;
  Reason: string;
}

/** The sweeper ended a session: gc:idle or gc:hard_cap. */
export interface SessionGCReapedPayload {
  SessionID: string;
  ReapedAt: number;
  Reason: string;
}

/** A session was opened for the first time. */
export interface SessionOpenedPayload {
  SessionID: string;
  OpenedAt: number;
}

/** A session was used. */
export interface SessionTouchedPayload {
  SessionID: string;
  LastSeen: number;
}

/** A skill was deleted. */
export interface SkillDeletedPayload {
  Name: string;
}

/** Skills were asked for without a complete identity; the envelope says `<missing>` for each empty part. */
export interface SkillIdentityRejectedPayload {
  Operation: string;
  Reason: string;
}

/** A write that comes from no pack tried to replace a pack's skill, and failed. */
export interface SkillPackOverwriteRefusedPayload {
  Name: string;
  ExistingOrigin: string;
  IncomingOrigin: string;
}

/** A generated skill was proposed. The two excerpts are redacted and at most 256 characters and an ellipsis. */
export interface SkillProposedPayload {
  Name: string;
  Origin: string;
  Scope: string;
  OriginRef: string;
  ContentHash: string;
  Result: string;
  Reason: string;
  RedactedTitleExcerpt: string;
  RedactedTriggerExcerpt: string;
  Promotion: string;
}

/** Skills were searched; the query appears as a hash alone. */
export interface SkillSearchExecutedPayload {
  QueryHash: string;
  Path: string;
  Limit: number;
  ResultN: number;
}

/** A skill was stored, or was there already in identical form. */
export interface SkillUpsertedPayload {
  Name: string;
  Origin: string;
  Scope: string;
  ContentHash: string;
  Idempotent: boolean;
}

/** A caller acknowledged a finished background task. */
export interface TaskBackgroundAcknowledgedPayload {
  TaskID: string;
}

/** A task was cancelled; `cascaded` if the request named another task, above it. */
export interface TaskCancelledPayload {
  TaskID: string;
  Reason: string;
  Cascaded: boolean;
}

/** A task reached its goal. */
export interface TaskCompletedPayload {
  TaskID: string;
}

/** A task ended without reaching its goal. */
export interface TaskFailedPayload {
  TaskID: string;
  ErrorCode: string;
}

/** A group was cancelled, or failed fast. */
export interface TaskGroupCancelledPayload {
  Completion: TaskGroupCompletion;
}

/** How a group ended; `session_id` holds the whole triple. */
export interface TaskGroupCompletion {
  GroupID: string;
  SessionID: Triple;
  OwnerTaskID: string;
  FinalStatus: string;
  ResolvedAt: string;
  Members: TaskGroupMember[];
  Reason: string;
}

/** A new group of tasks. */
export interface TaskGroupCreatedPayload {
  GroupID: string;
  OwnerTaskID: string;
  RetainTurn: boolean;
  FailFast: boolean;
  Description: string;
}

/** How one member ended. `result` is JSON data; wrap stored JSON text in `msgspec.Raw`. */
export interface TaskGroupMember {
  TaskID: string;
  Status: string;
  Result: Json;
  Error: TaskMemberFailure | null;
}

/** Every member of a sealed group has ended. Results were redacted when their tasks completed. */
export interface TaskGroupResolvedPayload {
  Completion: TaskGroupCompletion;
}

/** A group takes no further members. `sealed_at` is in unix nanoseconds. */
export interface TaskGroupSealedPayload {
  GroupID: string;
  Members: string[];
  SealedAt: number;
}

/** Why a member failed. */
export interface TaskMemberFailure {
  Code: string;
  Message: string;
}

/** A patch was accepted. */
export interface TaskPatchAppliedPayload {
  PatchID: string;
}

/** A patch was rejected. */
export interface TaskPatchRejectedPayload {
  PatchID: string;
}

/** A running task was paused. */
export interface TaskPausedPayload {
  TaskID: string;
}

/** A task's priority changed. */
export interface TaskPrioritisedPayload {
  TaskID: string;
  PriorPriority: number;
  NewPriority: number;
}

/** A paused task was resumed explicitly. */
export interface TaskResumedPayload {
  TaskID: string;
}

/** A task was created; an idempotent reuse creates none. */
export interface TaskSpawnedPayload {
  TaskID: string;
  Kind: string;
  ParentTaskID: string | null;
  Priority: number;
  IdempotencyKey: string;
}

/** A task began to run, coming from `prior_state`. */
export interface TaskStartedPayload {
  TaskID: string;
  PriorState: string;
}

/** A gated call waits for a person; `args_summary` is redacted. */
export interface ToolApprovalRequestedPayload {
  Tool: string;
  PauseToken: string;
  Reason: string;
  Tags: string[];
  ArgsSummary: Json;
  Step: number;
  CallID: string;
  Args: Json;
  ArgsCut: CutValue;
  Masked: boolean;
}

/** A gated call may run. */
export interface ToolApprovedPayload {
  Tool: string;
  PauseToken: string;
  ApproverReason: string;
  Step: number;
  CallID: string;
  By: Triple;
  EventID: string;
  Edited: boolean;
}

/** A person signed in for a tool's source. */
export interface ToolAuthCompletedPayload {
  Source: string;
  BindingScope: string;
  State: string;
  PauseToken: string;
  Step: number;
  CallID: string;
}

/** A tool's source needs a person to sign in at `authorize_url`, or to enter `user_code` at `verification_uri`. */
export interface ToolAuthRequiredPayload {
  Source: string;
  SourceName: string;
  BindingScope: string;
  AuthorizeURL: string;
  State: string;
  PauseToken: string;
  Scopes: string[];
  Step: number;
  CallID: string;
  UserCode: string;
  VerificationURI: string;
}

/** A tool call succeeded after `attempts` attempts. */
export interface ToolCompletedPayload {
  Identity: Quadruple;
  ToolName: string;
  Transport: string;
  Attempts: number;
  DurationMS: number;
  Step: number;
  CallID: string;
  Result: Json;
  ResultCut: CutValue;
  Masked: boolean;
}

/** A tool call failed for good, though neither by bad arguments nor by running out of attempts. */
export interface ToolFailedPayload {
  Identity: Quadruple;
  ToolName: string;
  Transport: string;
  Attempts: number;
  ErrorClass: string;
  ErrorMessage: string;
  Step: number;
  CallID: string;
}

/** A tool call whose worker died in it was resolved; `outcome` is `repeated`, `known` or `unknown`. `on_unknown` is the way in which that was found out. */
export interface ToolInterruptedPayload {
  Identity: Quadruple;
  ToolName: string;
  Transport: string;
  OnUnknown: string;
  Outcome: string;
  Step: number;
  CallID: string;
}

/** The arguments, or the result, did not fit the tool's schema. */
export interface ToolInvalidArgsPayload {
  Identity: Quadruple;
  ToolName: string;
  Transport: string;
  ValidationError: string;
  Step: number;
  CallID: string;
}

/** A tool call begins. */
export interface ToolInvokedPayload {
  Identity: Quadruple;
  ToolName: string;
  Transport: string;
  StartedAt: string;
  Step: number;
  CallID: string;
  Args: Json;
  ArgsCut: CutValue;
  Masked: boolean;
}

/** Every attempt that the tool's policy allows was used up. */
export interface ToolPolicyExhaustedPayload {
  Identity: Quadruple;
  ToolName: string;
  Transport: string;
  Attempts: number;
  LastClass: string;
  LastError: string;
  Step: number;
  CallID: string;
}

/** How far a tool call is, as the tool says. Only delivered, never stored; the last one of a call always comes. */
export interface ToolProgressPayload {
  Identity: Quadruple;
  ToolName: string;
  Step: number;
  CallID: string;
  Done: number;
  Total: number;
  Message: string;
}

/** A gated call may not run. */
export interface ToolRejectedPayload {
  Tool: string;
  PauseToken: string;
  Reason: string;
  Step: number;
  CallID: string;
  By: Triple;
  EventID: string;
}

/** An engine was built. */
export interface TopologyChangedPayload {
  Projection: TopologyProjection;
}

/** An engine's graph as it was at one moment. */
export interface TopologyProjection {
  engine_id: string;
  occurred_at: string;
  nodes: TopologyNode[];
  edges: TopologyEdge[];
}

/** A summary replaced the older steps of the trajectory in the prompt. */
export interface TrajectoryCompressedPayload {
  Identity: Quadruple;
  StepsBefore: number;
  StepsAfter: number;
  TokenEstimate: number;
  OccurredAt: string;
}

/** No summary could be made. `error_code` is estimator_error, summariser_error or empty_summary. */
export interface TrajectoryCompressionFailedPayload {
  Identity: Quadruple;
  StepsObserved: number;
  TokenEstimate: number;
  ErrorCode: string;
  ErrorMessage: string;
  OccurredAt: string;
}

/** An identity without a run, in the spelling that payloads use. */
export interface Triple {
  TenantID: string;
  UserID: string;
  SessionID: string;
}

/** Each method: its path, what is sent and what is answered. */
export interface Methods {
  "agents.get": { request: harborage_protocol_wire_agents_AgentRequest; answer: AgentDetail };
  "agents.governance": { request: harborage_protocol_wire_agents_AgentRequest; answer: AgentGovernance };
  "agents.list": { request: AgentListRequest; answer: AgentPage };
  "agents.memory": { request: harborage_protocol_wire_agents_AgentRequest; answer: AgentMemory };
  "agents.metrics": { request: Request; answer: AgentMetrics };
  "agents.permissions": { request: harborage_protocol_wire_agents_AgentRequest; answer: AgentPermissions };
  "agents.skills": { request: harborage_protocol_wire_agents_AgentRequest; answer: AgentSkills };
  "agents.tools": { request: harborage_protocol_wire_agents_AgentRequest; answer: AgentTools };
  "auth.rotate_token": { request: Request; answer: RotateTokenAnswer };
  "approve": { request: ControlRequest; answer: ControlAccepted };
  "artifacts.get_ref": { request: GetArtifactRef; answer: ArtifactLinked };
  "artifacts.list": { request: ListArtifacts; answer: ArtifactsListed };
  "artifacts.put": { request: PutArtifact; answer: ArtifactStored };
  "cancel": { request: ControlRequest; answer: ControlAccepted };
  "governance.posture": { request: Request; answer: GovernancePosture };
  "inject_context": { request: ControlRequest; answer: ControlAccepted };
  "llm.posture": { request: Request; answer: ModelPosture };
  "mcp.servers.bindings.list": { request: ServerNamed; answer: BindingsListed };
  "mcp.servers.get": { request: ServerNamed; answer: ServerDescribed };
  "mcp.servers.health": { request: ServerNamed; answer: HealthShown };
  "mcp.servers.list": { request: ListServers; answer: ServersListed };
  "mcp.servers.policy": { request: ServerNamed; answer: PolicyShown };
  "mcp.servers.probe": { request: ServerNamed; answer: Probed };
  "mcp.servers.prompts": { request: ServerNamed; answer: PromptsListed };
  "mcp.servers.refresh_binding": { request: BindingNamed; answer: SignInBegun };
  "mcp.servers.refresh_discovery": { request: ServerNamed; answer: Discovered };
  "mcp.servers.resources": { request: ServerNamed; answer: ResourcesListed };
  "mcp.servers.revoke_binding": { request: BindingNamed; answer: BindingRevoked };
  "mcp.servers.set_raw_html_trust": { request: SetTrust; answer: TrustSet };
  "metrics.snapshot": { request: Request; answer: MetricsSnapshot };
  "pause": { request: ControlRequest; answer: ControlAccepted };
  "prioritize": { request: ControlRequest; answer: ControlAccepted };
  "redirect": { request: ControlRequest; answer: ControlAccepted };
  "reject": { request: ControlRequest; answer: ControlAccepted };
  "resume": { request: ControlRequest; answer: ControlAccepted };
  "runtime.counters": { request: Request; answer: RuntimeCounters };
  "runtime.drivers": { request: Request; answer: RuntimeDrivers };
  "runtime.health": { request: Request; answer: RuntimeHealth };
  "runtime.info": { request: Request; answer: RuntimeInfo };
  "search.artifacts": { request: SearchRequest; answer: SearchPage };
  "search.events": { request: SearchRequest; answer: SearchPage };
  "search.query": { request: SearchRequest; answer: SearchPage };
  "search.sessions": { request: SearchRequest; answer: SearchPage };
  "search.tasks": { request: SearchRequest; answer: SearchPage };
  "start": { request: StartRequest; answer: Started };
  "topology.snapshot": { request: Request; answer: TopologySnapshot };
  "user_message": { request: ControlRequest; answer: ControlAccepted };
  "events.aggregate": { request: AggregateEvents; answer: EventsAggregated };
  "flows.describe": { request: DescribeFlow; answer: FlowDescribed };
  "flows.list": { request: ListFlows; answer: FlowsListed };
  "flows.metrics": { request: MeasureFlow; answer: FlowMeasured };
  "flows.run": { request: RunFlow; answer: FlowStarted };
  "flows.runs.describe": { request: DescribeFlowRun; answer: FlowRunDescribed };
  "flows.runs.list": { request: ListFlowRuns; answer: FlowRunsListed };
  "memory.get": { request: GetMemory; answer: MemoryShown };
  "memory.health": { request: MemoryHealth; answer: MemoryHealthShown };
  "memory.list": { request: ListMemory; answer: MemoryListed };
  "pause.list": { request: ListPauses; answer: PausesListed };
  "runs.compare": { request: CompareRequest; answer: CompareAnswer };
  "runs.fork": { request: ForkRequest; answer: ForkAnswer };
  "runs.freeze": { request: harborage_protocol_wire_runs_AgentRequest; answer: FreezeAnswer };
  "runs.replay": { request: harborage_protocol_wire_runs_AgentRequest; answer: ReplayAnswer };
  "runs.set_overrides": { request: SetOverrides; answer: OverridesSet };
  "runs.step": { request: StepRequest; answer: StepAnswer };
  "runs.steps": { request: StepsRequest; answer: StepsAnswer };
  "sessions.inspect": { request: SessionInspectRequest; answer: SessionDetail };
  "sessions.list": { request: SessionListRequest; answer: SessionPage };
  "tasks.get": { request: TaskGetRequest; answer: TaskDetail };
  "tasks.list": { request: TaskListRequest; answer: TaskPage };
  "tools.content_stats": { request: ToolNamed; answer: ToolContent };
  "tools.describe": { request: ToolNamed; answer: ToolDescribed };
  "tools.get": { request: ToolNamed; answer: ToolRow };
  "tools.list": { request: ListTools; answer: ToolsListed };
  "tools.metrics": { request: ToolMetrics; answer: ToolMeasured };
  "tools.revoke_oauth": { request: ToolNamed; answer: OAuthRevoked };
  "tools.set_approval_policy": { request: SetApprovalPolicy; answer: ApprovalPolicySet };
}

export const PATHS: { readonly [M in keyof Methods]: string } = {
  "agents.get": "/v1/agents/get",
  "agents.governance": "/v1/agents/governance",
  "agents.list": "/v1/agents/list",
  "agents.memory": "/v1/agents/memory",
  "agents.metrics": "/v1/agents/metrics",
  "agents.permissions": "/v1/agents/permissions",
  "agents.skills": "/v1/agents/skills",
  "agents.tools": "/v1/agents/tools",
  "auth.rotate_token": "/v1/auth/rotate_token",
  "approve": "/v1/control/approve",
  "artifacts.get_ref": "/v1/control/artifacts.get_ref",
  "artifacts.list": "/v1/control/artifacts.list",
  "artifacts.put": "/v1/control/artifacts.put",
  "cancel": "/v1/control/cancel",
  "governance.posture": "/v1/control/governance.posture",
  "inject_context": "/v1/control/inject_context",
  "llm.posture": "/v1/control/llm.posture",
  "mcp.servers.bindings.list": "/v1/control/mcp.servers.bindings.list",
  "mcp.servers.get": "/v1/control/mcp.servers.get",
  "mcp.servers.health": "/v1/control/mcp.servers.health",
  "mcp.servers.list": "/v1/control/mcp.servers.list",
  "mcp.servers.policy": "/v1/control/mcp.servers.policy",
  "mcp.servers.probe": "/v1/control/mcp.servers.probe",
  "mcp.servers.prompts": "/v1/control/mcp.servers.prompts",
  "mcp.servers.refresh_binding": "/v1/control/mcp.servers.refresh_binding",
  "mcp.servers.refresh_discovery": "/v1/control/mcp.servers.refresh_discovery",
  "mcp.servers.resources": "/v1/control/mcp.servers.resources",
  "mcp.servers.revoke_binding": "/v1/control/mcp.servers.revoke_binding",
  "mcp.servers.set_raw_html_trust": "/v1/control/mcp.servers.set_raw_html_trust",
  "metrics.snapshot": "/v1/control/metrics.snapshot",
  "pause": "/v1/control/pause",
  "prioritize": "/v1/control/prioritize",
  "redirect": "/v1/control/redirect",
  "reject": "/v1/control/reject",
  "resume": "/v1/control/resume",
  "runtime.counters": "/v1/control/runtime.counters",
  "runtime.drivers": "/v1/control/runtime.drivers",
  "runtime.health": "/v1/control/runtime.health",
  "runtime.info": "/v1/control/runtime.info",
  "search.artifacts": "/v1/control/search.artifacts",
  "search.events": "/v1/control/search.events",
  "search.query": "/v1/control/search.query",
  "search.sessions": "/v1/control/search.sessions",
  "search.tasks": "/v1/control/search.tasks",
  "start": "/v1/control/start",
  "topology.snapshot": "/v1/control/topology.snapshot",
  "user_message": "/v1/control/user_message",
  "events.aggregate": "/v1/events/aggregate",
  "flows.describe": "/v1/flows/describe",
  "flows.list": "/v1/flows/list",
  "flows.metrics": "/v1/flows/metrics",
  "flows.run": "/v1/flows/run",
  "flows.runs.describe": "/v1/flows/runs/describe",
  "flows.runs.list": "/v1/flows/runs/list",
  "memory.get": "/v1/memory/get",
  "memory.health": "/v1/memory/health",
  "memory.list": "/v1/memory/list",
  "pause.list": "/v1/pause/list",
  "runs.compare": "/v1/runs/compare",
  "runs.fork": "/v1/runs/fork",
  "runs.freeze": "/v1/runs/freeze",
  "runs.replay": "/v1/runs/replay",
  "runs.set_overrides": "/v1/runs/set_overrides",
  "runs.step": "/v1/runs/step",
  "runs.steps": "/v1/runs/steps",
  "sessions.inspect": "/v1/sessions/inspect",
  "sessions.list": "/v1/sessions/list",
  "tasks.get": "/v1/tasks/get",
  "tasks.list": "/v1/tasks/list",
  "tools.content_stats": "/v1/tools/content_stats",
  "tools.describe": "/v1/tools/describe",
  "tools.get": "/v1/tools/get",
  "tools.list": "/v1/tools/list",
  "tools.metrics": "/v1/tools/metrics",
  "tools.revoke_oauth": "/v1/tools/revoke_oauth",
  "tools.set_approval_policy": "/v1/tools/set_approval_policy",
};

export interface EventPayloads {
  "agent.deregistered": AgentDeregisteredPayload;
  "agent.drained": AgentCommandPayload;
  "agent.force_stopped": AgentCommandPayload;
  "agent.health": AgentHealthPayload;
  "agent.paused": AgentCommandPayload;
  "agent.registered": AgentRegisteredPayload;
  "agent.restart_requested": AgentCommandPayload;
  "agent.restarted": AgentRestartedPayload;
  "artifacts.uploaded": ArtifactsUploadedPayload;
  "audit.admin_scope_used": AuditAdminScopeUsedPayload | AdminTasksListedPayload | AdminActionPayload | AdminToolActionPayload | ImpersonationPayload;
  "audit.redaction_failed": AuditRedactionFailedPayload;
  "auth.rejected": AuthRejectedPayload;
  "bus.dropped": BusDroppedPayload;
  "bus.subscription_idle_closed": BusSubscriptionIdleClosedPayload;
  "control.applied": ControlLifecyclePayload;
  "control.received": ControlLifecyclePayload;
  "control.rejected": ControlRejectedPayload;
  "dev.draft.created": DevDraftCreatedPayload;
  "dev.draft.discarded": DevDraftDiscardedPayload;
  "dev.draft.previewed": DevDraftPreviewedPayload;
  "dev.draft.saved": DevDraftSavedPayload;
  "dev.draft.updated": DevDraftUpdatedPayload;
  "dev.hot_reload.completed": DevHotReloadCompletedPayload;
  "dev.hot_reload.triggered": DevHotReloadTriggeredPayload;
  "distributed.bus_envelope": DistributedBusEnvelopePayload;
  "flow.budget_exceeded": FlowBudgetExceededPayload;
  "flows.page_viewed": FlowsPageViewedPayload;
  "flows.run_invoked": FlowsRunInvokedPayload;
  "governance.budget_exceeded": GovernanceBudgetExceededPayload;
  "governance.maxtokens_exceeded": GovernanceMaxtokensExceededPayload;
  "governance.posture_read_admin": GovernancePostureReadAdminPayload;
  "governance.rate_limited": GovernanceRateLimitedPayload;
  "llm.completion.chunk": LLMCompletionChunkPayload;
  "llm.context_leak": LLMContextLeakPayload;
  "llm.context_window_exceeded": LLMContextWindowExceededPayload;
  "llm.cost.recorded": LLMCostRecordedPayload;
  "llm.image.materialized": LLMImageMaterializedPayload;
  "llm.mode_downgraded": LLMModeDowngradedPayload;
  "llm.posture_read_admin": LLMPostureReadAdminPayload;
  "llm.retry_with_feedback": LLMRetryWithFeedbackPayload;
  "mcp.raw_html_trust_toggled": MCPRawHtmlTrustToggledPayload;
  "mcp.resource_updated": MCPResourceUpdatedPayload;
  "memory.health_changed": MemoryHealthChangedPayload;
  "memory.identity_rejected": MemoryIdentityRejectedPayload;
  "memory.recovery_dropped": MemoryRecoveryDroppedPayload;
  "notification.auth_required": NotificationPayload;
  "notification.governance_budget_exceeded": NotificationPayload;
  "notification.identity_rejected": NotificationIdentityRejectedPayload;
  "notification.pause_requested": NotificationPayload;
  "notification.task_failed": NotificationPayload;
  "notification.tool_approval_requested": NotificationPayload;
  "pause.payload_artifact_routed": PausePayloadArtifactRoutedPayload;
  "pause.requested": PauseRequestedPayload;
  "pause.resumed": PauseResumedPayload;
  "planner.action_extra_field_dropped": ActionExtraFieldDroppedPayload;
  "planner.decision": DecisionPayload;
  "planner.error": PlannerErrorPayload;
  "planner.finish": PlannerFinishPayload;
  "planner.max_steps_exceeded": MaxStepsExceededPayload;
  "planner.repair_exhausted": RepairExhaustedPayload;
  "planner.repair_guidance_injected": RepairGuidanceInjectedPayload;
  "runs.overrides_set": RunsOverridesSetPayload;
  "runtime.error": RuntimeErrorPayload;
  "runtime.run_cancelled": RuntimeRunCancelledPayload;
  "runtime.warning": RuntimeWarningPayload;
  "session.closed": SessionClosedPayload;
  "session.gc_reaped": SessionGCReapedPayload;
  "session.opened": SessionOpenedPayload;
  "session.touched": SessionTouchedPayload;
  "skill.deleted": SkillDeletedPayload;
  "skill.identity_rejected": SkillIdentityRejectedPayload;
  "skill.pack_overwrite_refused": SkillPackOverwriteRefusedPayload;
  "skill.proposed": SkillProposedPayload;
  "skill.search_executed": SkillSearchExecutedPayload;
  "skill.upserted": SkillUpsertedPayload;
  "task.background_acknowledged": TaskBackgroundAcknowledgedPayload;
  "task.cancelled": TaskCancelledPayload;
  "task.completed": TaskCompletedPayload;
  "task.failed": TaskFailedPayload;
  "task.group_cancelled": TaskGroupCancelledPayload;
  "task.group_created": TaskGroupCreatedPayload;
  "task.group_resolved": TaskGroupResolvedPayload;
  "task.group_sealed": TaskGroupSealedPayload;
  "task.patch_applied": TaskPatchAppliedPayload;
  "task.patch_rejected": TaskPatchRejectedPayload;
  "task.paused": TaskPausedPayload;
  "task.prioritised": TaskPrioritisedPayload;
  "task.resumed": TaskResumedPayload;
  "task.spawned": TaskSpawnedPayload;
  "task.started": TaskStartedPayload;
  "tool.approval_requested": ToolApprovalRequestedPayload;
  "tool.approved": ToolApprovedPayload;
  "tool.auth_completed": ToolAuthCompletedPayload;
  "tool.auth_required": ToolAuthRequiredPayload;
  "tool.completed": ToolCompletedPayload;
  "tool.failed": ToolFailedPayload;
  "tool.interrupted": ToolInterruptedPayload;
  "tool.invalid_args": ToolInvalidArgsPayload;
  "tool.invoked": ToolInvokedPayload;
  "tool.policy_exhausted": ToolPolicyExhaustedPayload;
  "tool.progress": ToolProgressPayload;
  "tool.rejected": ToolRejectedPayload;
  "topology.changed": TopologyChangedPayload;
  "trajectory.compressed": TrajectoryCompressedPayload;
  "trajectory.compression_failed": TrajectoryCompressionFailedPayload;
}

export type EventType = keyof EventPayloads;

export const EVENT_TYPES: readonly EventType[] = ["agent.deregistered", "agent.drained", "agent.force_stopped", "agent.health", "agent.paused", "agent.registered", "agent.restart_requested", "agent.restarted", "artifacts.uploaded", "audit.admin_scope_used", "audit.redaction_failed", "auth.rejected", "bus.dropped", "bus.subscription_idle_closed", "control.applied", "control.received", "control.rejected", "dev.draft.created", "dev.draft.discarded", "dev.draft.previewed", "dev.draft.saved", "dev.draft.updated", "dev.hot_reload.completed", "dev.hot_reload.triggered", "distributed.bus_envelope", "flow.budget_exceeded", "flows.page_viewed", "flows.run_invoked", "governance.budget_exceeded", "governance.maxtokens_exceeded", "governance.posture_read_admin", "governance.rate_limited", "llm.completion.chunk", "llm.context_leak", "llm.context_window_exceeded", "llm.cost.recorded", "llm.image.materialized", "llm.mode_downgraded", "llm.posture_read_admin", "llm.retry_with_feedback", "mcp.raw_html_trust_toggled", "mcp.resource_updated", "memory.health_changed", "memory.identity_rejected", "memory.recovery_dropped", "notification.auth_required", "notification.governance_budget_exceeded", "notification.identity_rejected", "notification.pause_requested", "notification.task_failed", "notification.tool_approval_requested", "pause.payload_artifact_routed", "pause.requested", "pause.resumed", "planner.action_extra_field_dropped", "planner.decision", "planner.error", "planner.finish", "planner.max_steps_exceeded", "planner.repair_exhausted", "planner.repair_guidance_injected", "runs.overrides_set", "runtime.error", "runtime.run_cancelled", "runtime.warning", "session.closed", "session.gc_reaped", "session.opened", "session.touched", "skill.deleted", "skill.identity_rejected", "skill.pack_overwrite_refused", "skill.proposed", "skill.search_executed", "skill.upserted", "task.background_acknowledged", "task.cancelled", "task.completed", "task.failed", "task.group_cancelled", "task.group_created", "task.group_resolved", "task.group_sealed", "task.patch_applied", "task.patch_rejected", "task.paused", "task.prioritised", "task.resumed", "task.spawned", "task.started", "tool.approval_requested", "tool.approved", "tool.auth_completed", "tool.auth_required", "tool.completed", "tool.failed", "tool.interrupted", "tool.invalid_args", "tool.invoked", "tool.policy_exhausted", "tool.progress", "tool.rejected", "topology.changed", "trajectory.compressed", "trajectory.compression_failed"];
