import { TaskList } from "../tasks/page.tsx";
import { JOB_VIEWS } from "../tasks/query.ts";

/** The tasks that run beside those that asked for them. */
export default function BackgroundJobsPage() {
  return <TaskList kind="background" noun="background jobs" views={JOB_VIEWS} />;
}
